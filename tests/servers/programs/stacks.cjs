// One request to a small ONNX model, which the first argument names.
const { InferenceSession, Tensor } = require('onnxruntime-node')

async function main(model) {
    const session = await InferenceSession.create(model)
    const [{ name, shape }] = session.inputMetadata
    const count = shape.reduce((product, one) => product * one, 1)
    await session.run({ [name]: new Tensor('float32', new Float32Array(count).fill(1), shape) })
    console.log('{}')
    process.stdin.on('end', () => process.exit(session.release && 0)).resume()
}

main(process.argv[2])
