import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtException;
import ai.onnxruntime.OrtLoggingLevel;
import ai.onnxruntime.OrtSession;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/** An application of the Java package from Maven Central. Its commands and answers are those of caller.c. */
public final class Caller {
    private static final String MODEL = System.getenv("CALLER_MODEL");
    private static OrtEnvironment environment;
    private static final Map<String, OrtSession.SessionOptions> OPTIONS = new HashMap<>();
    private static final Map<String, OrtSession> SESSIONS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("= version " + System.getenv("CALLER_VERSION"));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String answer = "ok";
            try {
                obey(line.trim().split(" +"));
            } catch (OrtException | IllegalStateException error) {
                answer = "error " + error.getMessage().replace('\n', ' ');
            }
            System.out.println("= " + answer);
        }
        for (OrtSession session : SESSIONS.values()) session.close();
        for (OrtSession.SessionOptions options : OPTIONS.values()) options.close();
    }

    private static Map<String, String> pairs(String[] words, int from) {
        Map<String, String> found = new LinkedHashMap<>();
        for (int i = from; i < words.length; i++) {
            int equals = words[i].lastIndexOf('=');
            found.put(words[i].substring(0, equals), words[i].substring(equals + 1));
        }
        return found;
    }

    private static void obey(String[] words) throws Exception {
        switch (words[0]) {
            case "env" -> environment = environment(pairs(words, 1));
            case "options" -> {
                OrtSession.SessionOptions made = new OrtSession.SessionOptions();
                for (Map.Entry<String, String> pair : pairs(words, 2).entrySet()) {
                    set(made, pair.getKey(), pair.getValue());
                }
                OPTIONS.put(words[1], made);
            }
            case "drop" -> OPTIONS.remove(words[1]).close();
            case "session" -> SESSIONS.put(words[1], words[2].equals("-")
                ? environment.createSession(MODEL)
                : environment.createSession(MODEL, OPTIONS.get(words[2])));
            case "array" -> {
                byte[] bytes = Files.readAllBytes(Path.of(MODEL));
                SESSIONS.put(words[1], words[2].equals("-")
                    ? environment.createSession(bytes)
                    : environment.createSession(bytes, OPTIONS.get(words[2])));
            }
            case "run" -> run(SESSIONS.get(words[1]));
            case "release" -> SESSIONS.remove(words[1]).close();
            default -> throw new IllegalStateException(words[0]);
        }
    }

    private static OrtEnvironment environment(Map<String, String> wanted) throws OrtException {
        if (wanted.isEmpty()) {
            return OrtEnvironment.getEnvironment();
        }
        OrtEnvironment.ThreadingOptions threading = new OrtEnvironment.ThreadingOptions();
        for (Map.Entry<String, String> pair : wanted.entrySet()) {
            int number = Integer.parseInt(pair.getValue());
            switch (pair.getKey()) {
                case "intra" -> threading.setGlobalIntraOpNumThreads(number);
                case "inter" -> threading.setGlobalInterOpNumThreads(number);
                case "spin" -> threading.setGlobalSpinControl(number != 0);
                default -> throw new IllegalStateException(pair.getKey());
            }
        }
        return OrtEnvironment.getEnvironment(OrtLoggingLevel.ORT_LOGGING_LEVEL_WARNING, "caller", threading);
    }

    private static void set(OrtSession.SessionOptions to, String key, String value) throws OrtException {
        if (key.startsWith("entry.")) {
            to.addConfigEntry(key.substring(6), value);
            return;
        }
        switch (key) {
            case "intra" -> to.setIntraOpNumThreads(Integer.parseInt(value));
            case "inter" -> to.setInterOpNumThreads(Integer.parseInt(value));
            case "parallel" -> to.setExecutionMode(value.equals("1")
                ? OrtSession.SessionOptions.ExecutionMode.PARALLEL
                : OrtSession.SessionOptions.ExecutionMode.SEQUENTIAL);
            case "graph" -> to.setOptimizationLevel(switch (value) {
                case "0" -> OrtSession.SessionOptions.OptLevel.NO_OPT;
                case "1" -> OrtSession.SessionOptions.OptLevel.BASIC_OPT;
                case "2" -> OrtSession.SessionOptions.OptLevel.EXTENDED_OPT;
                default -> OrtSession.SessionOptions.OptLevel.ALL_OPT;
            });
            case "optimized" -> to.setOptimizedModelFilePath(value);
            case "arena" -> to.setCPUArenaAllocator(value.equals("1"));
            case "memPattern" -> to.setMemoryPatternOptimization(value.equals("1"));
            case "shared" -> to.disablePerSessionThreads();
            default -> throw new IllegalStateException(key);
        }
    }

    private static void run(OrtSession session) throws OrtException {
        try (OnnxTensor input = OnnxTensor.createTensor(
                environment, FloatBuffer.allocate(64 * 256), new long[] {64, 256});
            OrtSession.Result result = session.run(Map.of("input", input))) {
            result.get(0);
        }
    }
}
