// Requests to a small ONNX model, which the first argument names; as in units.py.
const { createInterface } = require('readline')
const { InferenceSession, Tensor } = require('onnxruntime-node')

async function main(model) {
    const session = await InferenceSession.create(model)
    const [{ name, shape }] = session.inputMetadata
    const count = shape.reduce((product, one) => product * one, 1)
    const rows = { [name]: new Tensor('float32', new Float32Array(count).fill(1), shape) }
    await session.run(rows)
    console.log('{}')
    for await (const line of createInterface({ input: process.stdin })) {
        const start = performance.now()
        const seconds = () => (performance.now() - start) / 1000
        let units = 0
        for (; seconds() < Number(line); units++) await session.run(rows)
        console.log(JSON.stringify({ units, seconds: seconds() }))
    }
    process.exit(session.release && 0)
}

main(process.argv[2])
