// Runs the model that the first argument names, through Go's binding of ONNX Runtime; as in units.py.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"time"

	onnxruntime "github.com/yalue/onnxruntime_go"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	onnxruntime.SetSharedLibraryPath(os.Getenv("ORT_DYLIB_PATH"))
	must(0, onnxruntime.InitializeEnvironment())
	shape := onnxruntime.NewShape(64, 256)
	input := must(onnxruntime.NewTensor(shape, make([]float32, 64*256)))
	output := must(onnxruntime.NewEmptyTensor[float32](shape))
	_, outputs := must2(onnxruntime.GetInputOutputInfo(os.Args[1]))
	session := must(onnxruntime.NewAdvancedSession(os.Args[1], []string{"input"}, []string{outputs[0].Name},
		[]onnxruntime.Value{input}, []onnxruntime.Value{output}, nil))
	must(0, session.Run())
	fmt.Println("{}")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		most := must(strconv.ParseFloat(lines.Text(), 64))
		start, units := time.Now(), 0
		for ; time.Since(start).Seconds() < most; units++ {
			must(0, session.Run())
		}
		fmt.Printf("{\"units\": %d, \"seconds\": %f}\n", units, time.Since(start).Seconds())
	}
	session.Destroy()
}

func must2[S, T any](first S, second T, err error) (S, T) {
	return first, must(second, err)
}
