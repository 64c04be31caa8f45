// Loads and runs models that `tilewright compile --emit wasm` has made, in browsers, Node and Deno.
//
//   import { load } from "./model.js";
//   const model = await load("model.wasm");
//   const { y } = model.run({ x: new Float32Array(784) });

const ARRAYS = {
  bool: Uint8Array, uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array,
  uint32: Uint32Array, int32: Int32Array, uint64: BigUint64Array, int64: BigInt64Array,
  float16: Uint16Array, bfloat16: Uint16Array, // as bits
  float32: Float32Array, float64: Float64Array,
};

const CODES = { 1: "an access out of bounds", 3: "a loop without an end", 5: "an index out of range",
                6: "an index out of range" };

/** A model of `source`: a URL, a Response, or the bytes of the module. */
export async function load(source) {
  const isAddress = typeof source === "string" || source instanceof URL;
  const given = isAddress ? await fetch(source) : source;
  const bytes = typeof given.arrayBuffer === "function" ? await given.arrayBuffer() : given;
  const module = await WebAssembly.compile(bytes);
  const [section] = WebAssembly.Module.customSections(module, "tilewright");
  if (section === undefined) throw new Error("the module is none that Tilewright has made");
  return new Model(await WebAssembly.instantiate(module), JSON.parse(new TextDecoder().decode(section)));
}

class Model {
  #exports;
  #context;

  constructor(instance, facts) {
    this.#exports = instance.exports;
    this.#context = facts.context;
    this.inputs = facts.inputs;
    this.outputs = facts.outputs;
  }

  /** Typed arrays by the names of the inputs in; typed arrays by the names of the outputs out. */
  run(inputs) {
    for (const tensor of this.inputs) this.#view(tensor).set(this.#accepted(tensor, inputs[tensor.name]));
    const code = this.#exports.run(this.#context);
    if (code !== 0) throw new Error(`the model reports ${CODES[code] ?? `error ${code}`}`);
    return Object.fromEntries(this.outputs.map((tensor) => [tensor.name, this.#view(tensor).slice()]));
  }

  #accepted(tensor, array) {
    const kind = ARRAYS[tensor.dtype];
    if (!(array instanceof kind) || array.byteLength !== tensor.bytes) {
      const length = tensor.bytes / kind.BYTES_PER_ELEMENT;
      throw new TypeError(`input ${tensor.name}: give a ${kind.name} of ${length} elements (${tensor.shape.join(" x ")})`);
    }
    return array;
  }

  #view(tensor) {
    const kind = ARRAYS[tensor.dtype];
    return new kind(this.#exports.memory.buffer, tensor.at, tensor.bytes / kind.BYTES_PER_ELEMENT);
  }
}
