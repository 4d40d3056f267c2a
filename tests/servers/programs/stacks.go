// Work on every processor that Go counts, so that each has its thread; as in units.py.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

func work() {
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
}

var sums [1 << 10]float64

// sum is the same work however many processors there are, in parts.
func sum() {
	var done sync.WaitGroup
	for part := range sums {
		done.Add(1)
		go func() {
			defer done.Done()
			for i := 0; i < 20_000; i++ {
				sums[part] += float64(i)
			}
		}()
	}
	done.Wait()
}

func main() {
	work()
	fmt.Printf("{\"says\": %d}\n", runtime.GOMAXPROCS(0))
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		most, _ := strconv.ParseFloat(lines.Text(), 64)
		start, units := time.Now(), 0
		for ; time.Since(start).Seconds() < most; units++ {
			sum()
		}
		fmt.Printf("{\"units\": %d, \"seconds\": %f}\n", units, time.Since(start).Seconds())
	}
}
