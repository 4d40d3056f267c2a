import ai.djl.inference.Predictor;
import ai.djl.ndarray.NDList;
import ai.djl.ndarray.NDManager;
import ai.djl.ndarray.types.Shape;
import ai.djl.repository.zoo.Criteria;
import ai.djl.repository.zoo.ZooModel;
import java.nio.file.Path;

/** Runs the model that the first argument names once, through DJL with its ONNX Runtime engine. */
public final class Djl {
    public static void main(String[] arguments) throws Exception {
        Criteria<NDList, NDList> wanted = Criteria.builder()
            .setTypes(NDList.class, NDList.class).optEngine("OnnxRuntime").optModelPath(Path.of(arguments[0])).build();
        try (ZooModel<NDList, NDList> model = wanted.loadModel();
                Predictor<NDList, NDList> predictor = model.newPredictor();
                NDManager manager = NDManager.newBaseManager("OnnxRuntime")) {
            predictor.predict(new NDList(manager.create(new float[64 * 256], new Shape(64, 256))));
            System.out.println("{}");
            System.in.readAllBytes();
        }
    }
}
