import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtSession;
import java.util.Map;
import java.util.Scanner;

/** Runs the model that the first argument names, through ONNX Runtime's own Java package; as in units.py. */
public final class Onnx {
    public static void main(String[] arguments) throws Exception {
        OrtEnvironment environment = OrtEnvironment.getEnvironment();
        try (OrtSession session = environment.createSession(arguments[0]);
                OnnxTensor input = OnnxTensor.createTensor(environment, new float[64][256])) {
            session.run(Map.of("input", input)).close();
            System.out.println("{}");
            for (Scanner lines = new Scanner(System.in); lines.hasNextLine(); ) {
                double most = Double.parseDouble(lines.nextLine());
                long start = System.nanoTime();
                int units = 0;
                for (; (System.nanoTime() - start) / 1e9 < most; units++) {
                    session.run(Map.of("input", input)).close();
                }
                System.out.printf("{\"units\": %d, \"seconds\": %f}%n", units, (System.nanoTime() - start) / 1e9);
            }
        }
    }
}
