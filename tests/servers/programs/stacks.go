// Work on every processor that Go counts, so that each has its thread.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"
)

func main() {
	var done sync.WaitGroup
	for range make([]int, runtime.GOMAXPROCS(0)) {
		done.Add(1)
		go func() {
			defer done.Done()
			for start := time.Now(); time.Since(start) < time.Second; {
			}
		}()
	}
	done.Wait()
	fmt.Printf("{\"says\": %d}\n", runtime.GOMAXPROCS(0))
	io.ReadAll(os.Stdin)
}
