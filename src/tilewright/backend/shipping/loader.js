// Loads and runs models that `tilewright compile --emit wasm` has made, in browsers, Node and Deno.
//
//   import { load } from "./model.js";
//   const model = await load("model.wasm");
//   const { y } = await model.run({ x: new Float32Array(784) });
//
// With sizes that are known at run time only: model.run({ x }, { batch: 2 }). With threads: load("model.wasm",
// { threads: 4 }), and model.close() at the end.

const ARRAYS = {
  bool: Uint8Array, uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array,
  uint32: Uint32Array, int32: Int32Array, uint64: BigUint64Array, int64: BigInt64Array,
  float16: Uint16Array, bfloat16: Uint16Array, // as bits
  float32: Float32Array, float64: Float64Array,
};

const CODES = { 1: "an access out of bounds", 3: "a loop without an end", 5: "an index out of range",
                6: "an index out of range", 8: "sizes that it was not made for" };

const ALIGNMENT = 64;
const PAGE = 65536;
const address = ({ bits }) => (bits === 64 ? BigInt : Number); // what addresses are in JavaScript
const aligned = (at) => Math.ceil(at / ALIGNMENT) * ALIGNMENT;

/** A model of `source`: a URL, a Response, or the bytes of the module. `threads`: for a module that has them. */
export async function load(source, { threads = 1 } = {}) {
  const isAddress = typeof source === "string" || source instanceof URL;
  const given = isAddress ? await fetch(source) : source;
  const bytes = typeof given.arrayBuffer === "function" ? await given.arrayBuffer() : given;
  const module = await WebAssembly.compile(bytes);
  const [section] = WebAssembly.Module.customSections(module, "tilewright");
  if (section === undefined) throw new Error("the module is none that Tilewright has made");
  const facts = JSON.parse(new TextDecoder().decode(section));
  if (facts.threads) return ThreadedModel.start(module, facts, threads);
  if (threads !== 1) throw new Error("the module has no threads: compile it for wasm32,+atomics");
  const { exports } = await WebAssembly.instantiate(module);
  return new Model(facts, exports, exports.memory);
}

class Model {
  constructor(facts, exports, memory) {
    this.exports = exports;
    this.memory = memory;
    this.heap = facts.heap;
    this.bits = facts.bits;
    this.address = address(facts);
    this.threads = 1;
    this.pool = 0;
    this.inputs = facts.inputs;
    this.outputs = facts.outputs;
    this.open = facts.open;
  }

  /** The shapes and bytes of all tensors, for sizes by name: of those in `open`, which the model leaves open. */
  sizes(open = {}) {
    const tensors = [...this.inputs, ...this.outputs];
    const count = tensors.reduce((sum, tensor) => sum + tensor.shape.length + 1, 1);
    const listAt = this.heap + 8 * this.open.length;
    this.reserve(listAt + 8 * count);
    new BigInt64Array(this.memory.buffer, this.heap, this.open.length).set(this.open.map((one) => whole(one, open)));
    this.#check(this.exports.sizes(this.address(this.heap), BigInt(this.threads), this.address(listAt)));
    const numbers = Array.from(new BigInt64Array(this.memory.buffer, listAt, count), Number);
    const described = tensors.map(({ name, dtype, shape }) => {
      const known = numbers.splice(0, shape.length);
      return { name, dtype, shape: known, bytes: numbers.shift() };
    });
    const inputs = described.slice(0, this.inputs.length);
    return { inputs, outputs: described.slice(inputs.length), scratch: numbers[0], end: listAt + 8 * count };
  }

  /** Typed arrays by the names of the inputs in, and sizes by name; typed arrays by the names of the outputs out. */
  run(inputs, open = {}) {
    const call = this.prepare(inputs, open);
    return this.results(call, this.exports.run(...call.parameters));
  }

  /** Memory for a call, with its inputs. */
  prepare(inputs, open) {
    const sizes = this.sizes(open);
    const tensors = [...sizes.inputs, ...sizes.outputs];
    const tableAt = aligned(sizes.end);
    const Table = this.bits === 64 ? BigUint64Array : Uint32Array;
    let end = aligned(tableAt + Table.BYTES_PER_ELEMENT * tensors.length);
    const places = tensors.map(({ bytes }) => { const at = end; end = aligned(at + bytes); return at; });
    this.reserve(end + sizes.scratch);
    new Table(this.memory.buffer, tableAt, places.length).set(places.map((one) => this.address(one)));
    sizes.inputs.forEach((tensor, i) => this.#view(tensor, places[i]).set(accepted(tensor, inputs[tensor.name])));
    const outputsAt = tableAt + Table.BYTES_PER_ELEMENT * sizes.inputs.length;
    const at = [this.heap, tableAt, outputsAt, end].map((one) => this.address(one));
    const parameters = [...at, BigInt(this.threads), this.address(this.pool)];
    return { parameters, outputs: sizes.outputs, places: places.slice(sizes.inputs.length) };
  }

  /** The outputs of a call that has ended with `code`. */
  results(call, code) {
    this.#check(code);
    return Object.fromEntries(call.outputs.map((one, i) => [one.name, this.#view(one, call.places[i]).slice()]));
  }

  reserve(end) {
    const missing = end - this.memory.buffer.byteLength;
    if (missing > 0) this.memory.grow(this.address(Math.ceil(missing / PAGE)));
  }

  #check(code) {
    if (code !== 0) throw new Error(`the model reports ${CODES[code] ?? `error ${code}`}`);
  }

  #view(tensor, at) {
    const kind = ARRAYS[tensor.dtype];
    return new kind(this.memory.buffer, at, tensor.bytes / kind.BYTES_PER_ELEMENT);
  }
}

function whole({ name, least, most }, open) {
  const size = open[name];
  if (!Number.isInteger(size) || size < least || size > (most ?? Number.MAX_SAFE_INTEGER)) {
    throw new TypeError(`size ${name}: give a whole number from ${least} ${most === null ? "on" : `to ${most}`}`);
  }
  return BigInt(size);
}

function accepted(tensor, array) {
  const kind = ARRAYS[tensor.dtype];
  if (!(array instanceof kind) || array.byteLength !== tensor.bytes) {
    const length = tensor.bytes / kind.BYTES_PER_ELEMENT;
    throw new TypeError(`input ${tensor.name}: give a ${kind.name} of ${length} elements (${tensor.shape.join(" x ")})`);
  }
  return array;
}

// What each thread runs: number 0 the calls, the others their chunks. A script, as a page may be one file.
const THREAD = `
const inNode = typeof require === "function";
const port = inNode ? require("node:worker_threads").parentPort : self;
let run;
async function act({ module, memory, stack, slot, parameters }) {
  try {
    if (parameters) return port.postMessage({ code: run(...parameters) });
    const { exports } = await WebAssembly.instantiate(module, { env: { memory } });
    exports.stack.value = stack;
    run = exports.run;
    port.postMessage({});
    if (slot) exports.work(slot);
  } catch (error) {
    port.postMessage({ error: String(error) });
  }
}
if (inNode) port.on("message", act); else port.onmessage = (event) => act(event.data);
`;

async function newThread() {
  if (typeof Worker === "function") {
    return new Worker(URL.createObjectURL(new Blob([THREAD], { type: "text/javascript" })));
  }
  const { Worker: NodeWorker } = await import("node:worker_threads");
  return new NodeWorker(THREAD, { eval: true });
}

class ThreadedModel extends Model {
  #workers = [];
  #last = Promise.resolve();
  #fail = () => {};

  /** A model with its threads running. They share the memory; each has a stack of its own. */
  static async start(module, facts, threads) {
    const { stack, pool } = facts.threads;
    const poolAt = facts.heap, stacksAt = aligned(poolAt + pool.bytes), end = stacksAt + threads * stack;
    const wide = address(facts), kind = facts.bits === 64 ? { address: "i64" } : {};
    const [initial, maximum] = [Math.ceil(end / PAGE), facts.pages].map((pages) => wide(pages));
    const memory = new WebAssembly.Memory({ initial, maximum, shared: true, ...kind });
    const { exports } = await WebAssembly.instantiate(module, { env: { memory } });
    exports.init();
    const model = new ThreadedModel({ ...facts, heap: end }, exports, memory);
    model.threads = threads;
    model.pool = poolAt;
    const words = new Int32Array(memory.buffer);
    words[(poolAt + pool.spins_at) / 4] = pool.spins;
    words[(poolAt + pool.workers_at) / 4] = threads - 1;
    for (let id = 0; id < threads; id++) {
      const slot = id && poolAt + pool.slots_at + id * pool.slot_bytes;
      if (id) words.set([poolAt, 0, id, 0], slot / 4);
      await model.#started({ module, memory, stack: wide(stacksAt + (id + 1) * stack), slot: wide(slot) });
    }
    return model;
  }

  /** A promise of the outputs. Calls run one after the other. */
  run(inputs, open = {}) {
    const call = async () => {
      const prepared = this.prepare(inputs, open);
      const { code } = await this.#told(this.#workers[0], { parameters: prepared.parameters });
      return this.results(prepared, code);
    };
    this.#last = this.#last.then(call, call);
    return this.#last;
  }

  /** Ends the threads. */
  close() {
    for (const worker of this.#workers) worker.terminate();
    this.#fail(new Error("the model is closed"));
  }

  async #started(message) {
    const worker = await newThread();
    this.#workers.push(worker);
    await this.#told(worker, message);
  }

  /** What a thread answers. An error of any thread ends the call. */
  #told(worker, message) {
    return new Promise((resolve, reject) => {
      this.#fail = reject;
      const heard = (answer) => (answer.error === undefined ? resolve(answer) : reject(new Error(answer.error)));
      for (const one of this.#workers) {
        const listen = one === worker ? heard : (answer) => answer.error !== undefined && heard(answer);
        if (typeof one.on === "function") one.removeAllListeners("message").on("message", listen);
        else one.onmessage = (event) => listen(event.data);
      }
      worker.postMessage(message);
    });
  }
}
