-- A database of version 1: as it was made then.
PRAGMA application_id = 1415007570;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE quarantine (subject TEXT PRIMARY KEY, reason TEXT NOT NULL, until TEXT) STRICT;
INSERT INTO "quarantine" VALUES('ed045c62e6e6f43e879c35d320f1ceff59ca5c7638612b204821ee6b49566dd6','slower',NULL);
INSERT INTO "quarantine" VALUES('9bc6cb0d6a185db4f338fd87f1a02114e7861d3fc21cdaa41f36a47db9577e76','crash: SIGSEGV',NULL);
CREATE TABLE record (id INTEGER PRIMARY KEY, job TEXT NOT NULL UNIQUE, workload_id INTEGER NOT NULL REFERENCES workload(id), target_id INTEGER NOT NULL REFERENCES target(id), session_id INTEGER NOT NULL REFERENCES session(id), schedule_json TEXT NOT NULL, config_json TEXT NOT NULL, status TEXT NOT NULL CHECK (status IN ('ok', 'wrong', 'crash', 'timeout', 'oom', 'build_error', 'device_lost', 'protocol')), error TEXT NOT NULL, times_us_json TEXT NOT NULL, median_us REAL, mad_us REAL, baseline_us REAL, env_json TEXT NOT NULL, created TEXT NOT NULL, CHECK ((status = 'ok') = (median_us IS NOT NULL)), CHECK (median_us IS NULL OR median_us > 0)) STRICT;
INSERT INTO "record" VALUES(1,'f28f9e7f037cb46531a7306c6f4cf5268ffc0cd9cff48c5af09d6c07126954dd',1,1,1,'{"version": 1, "steps": [
  {"primitive": "split", "arguments": [{"loop": "j"}, [null, 4]], "options": {}, "results": [{"loop": "j_0"}, {"loop": "j_1"}]},
  {"primitive": "vectorize", "arguments": [{"loop": "j_1"}], "options": {}, "results": []}
]}','{"seed": 0, "threads": 1, "timing": {"between_bytes": 0, "cold": [], "least_seconds": 0.0005, "repeats": 3}}','ok','','[2.0]',2.0,0.0,NULL,'{"baseline_us": null, "drift": null, "machine": {}, "phase": null, "predicted": null, "seconds": {}}','2026-11-23T15:05:29.673+00:00');
INSERT INTO "record" VALUES(2,'dfd392d5f04defb94f2bde86beeaa14bb69fed9421b1bd1c4de1d6af49dc3175',1,1,1,'{"version": 1, "steps": [
  {"primitive": "split", "arguments": [{"loop": "j"}, [null, 4]], "options": {}, "results": [{"loop": "j_0"}, {"loop": "j_1"}]},
  {"primitive": "vectorize", "arguments": [{"loop": "j_1"}], "options": {}, "results": []}
]}','{"seed": 1, "threads": 1, "timing": {"between_bytes": 0, "cold": [], "least_seconds": 0.0005, "repeats": 3}}','ok','','[3.0]',3.0,0.0,NULL,'{"baseline_us": null, "drift": null, "machine": {}, "phase": null, "predicted": null, "seconds": {}}','2026-11-23T15:05:29.676+00:00');
INSERT INTO "record" VALUES(3,'d330f257eab5b03b958c26b39dbc0c7d71484de9929603769c6ac2e40874de94',1,1,1,'{"version": 1, "steps": [
  {"primitive": "split", "arguments": [{"loop": "j"}, [null, 4]], "options": {}, "results": [{"loop": "j_0"}, {"loop": "j_1"}]},
  {"primitive": "vectorize", "arguments": [{"loop": "j_1"}], "options": {}, "results": []}
]}','{"seed": 2, "threads": 1, "timing": {"between_bytes": 0, "cold": [], "least_seconds": 0.0005, "repeats": 3}}','ok','','[4.0]',4.0,0.0,NULL,'{"baseline_us": null, "drift": null, "machine": {}, "phase": null, "predicted": null, "seconds": {}}','2026-11-23T15:05:29.680+00:00');
INSERT INTO "record" VALUES(4,'bbdaf9eed966e1f8acce9f86aa31786feac66ade052a62cf7e87d306d0873d03',1,1,1,'{"version": 1, "steps": [
  {"primitive": "split", "arguments": [{"loop": "j"}, [null, 4]], "options": {}, "results": [{"loop": "j_0"}, {"loop": "j_1"}]},
  {"primitive": "vectorize", "arguments": [{"loop": "j_1"}], "options": {}, "results": []}
]}','{"seed": 3, "threads": 1, "timing": {"between_bytes": 0, "cold": [], "least_seconds": 0.0005, "repeats": 3}}','ok','','[5.0]',5.0,0.0,NULL,'{"baseline_us": null, "drift": null, "machine": {}, "phase": null, "predicted": null, "seconds": {}}','2026-11-23T15:05:29.684+00:00');
INSERT INTO "record" VALUES(5,'ed045c62e6e6f43e879c35d320f1ceff59ca5c7638612b204821ee6b49566dd6',1,1,1,'{"version": 1, "steps": []}','{"seed": 1, "threads": 1, "timing": {"between_bytes": 0, "cold": [], "least_seconds": 0.0005, "repeats": 3}}','ok','','[9.0]',9.0,0.0,NULL,'{"baseline_us": null, "drift": null, "machine": {}, "phase": null, "predicted": null, "seconds": {}}','2026-11-23T15:05:29.688+00:00');
INSERT INTO "record" VALUES(6,'9bc6cb0d6a185db4f338fd87f1a02114e7861d3fc21cdaa41f36a47db9577e76',1,1,1,'{"version": 1, "steps": []}','{"seed": 0, "threads": 1, "timing": {"between_bytes": 0, "cold": [], "least_seconds": 0.0005, "repeats": 3}}','crash','SIGSEGV','[]',NULL,NULL,NULL,'{"baseline_us": null, "drift": null, "machine": {}, "phase": null, "predicted": null, "seconds": {}}','2026-11-23T15:05:29.695+00:00');
CREATE TABLE session (id INTEGER PRIMARY KEY, started TEXT NOT NULL, host TEXT NOT NULL, tool_version TEXT NOT NULL, config_json TEXT NOT NULL, ended TEXT, outcome TEXT) STRICT;
INSERT INTO "session" VALUES(1,'2026-11-23T15:05:29.668+00:00','here','0.1.0','{}','2026-11-23T15:05:29.700+00:00','done');
CREATE TABLE target (id INTEGER PRIMARY KEY, fp TEXT NOT NULL UNIQUE, text TEXT NOT NULL, json TEXT NOT NULL) STRICT;
INSERT INTO "target" VALUES(1,'c4b11581f5673f0206361846f252799237a6d22a3f1def8e77c688c0622993df','x86_64,znver4,cores=2','{"arch": "x86_64", "cores": 2, "cpu": "znver4", "features": ["avx", "avx2", "avx512bf16", "avx512bitalg", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vl", "avx512vnni", "avx512vpopcntdq", "bmi", "bmi2", "cx16", "f16c", "fma", "gfni", "lzcnt", "movbe", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3", "vaes", "vpclmulqdq"], "fma_per_cycle": 1, "l1_bytes": 32768, "l2_bytes": 524288, "l3_bytes": 8388608, "loads_per_cycle": 1, "vector_bits": 512, "vector_registers": 32}');
CREATE TABLE workload (id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, ir_version INTEGER NOT NULL, ir TEXT NOT NULL) STRICT;
INSERT INTO "workload" VALUES(1,'d178eeff189c5807b8edefc2ab96e9e28fcb45eb0d52887487046332675b2ca2',1,'program tuned(A: f32[4, 4], B: f32[4, 4]) -> (C: f32[4, 4]):
  for i in range(4):
    for j in range(4):
      for k in range(4):
        block C(vi = i: spatial 4, vj = j: spatial 4, vk = k: reduce 4):
          reads C[vi, vj], A[vi, vk], B[vk, vj]
          writes C[vi, vj]
          init:
            C[vi, vj] = f32(0.0)
          C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
');
CREATE INDEX best ON record (workload_id, target_id, median_us) WHERE status = 'ok';
COMMIT;
