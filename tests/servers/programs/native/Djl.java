import ai.djl.inference.Predictor;
import ai.djl.ndarray.NDList;
import ai.djl.ndarray.NDManager;
import ai.djl.ndarray.types.Shape;
import ai.djl.repository.zoo.Criteria;
import ai.djl.repository.zoo.ZooModel;
import java.nio.file.Path;
import java.util.Scanner;

/** Runs the model that the first argument names, through DJL with its ONNX Runtime engine; as in units.py. */
public final class Djl {
    public static void main(String[] arguments) throws Exception {
        Criteria<NDList, NDList> wanted = Criteria.builder()
            .setTypes(NDList.class, NDList.class).optEngine("OnnxRuntime").optModelPath(Path.of(arguments[0])).build();
        try (ZooModel<NDList, NDList> model = wanted.loadModel();
                Predictor<NDList, NDList> predictor = model.newPredictor();
                NDManager manager = NDManager.newBaseManager("OnnxRuntime")) {
            NDList rows = new NDList(manager.create(new float[64 * 256], new Shape(64, 256)));
            predictor.predict(rows).close();
            System.out.println("{}");
            for (Scanner lines = new Scanner(System.in); lines.hasNextLine(); ) {
                double most = Double.parseDouble(lines.nextLine());
                long start = System.nanoTime();
                int units = 0;
                for (; (System.nanoTime() - start) / 1e9 < most; units++) {
                    predictor.predict(rows).close();
                }
                System.out.printf("{\"units\": %d, \"seconds\": %f}%n", units, (System.nanoTime() - start) / 1e9);
            }
        }
    }
}
