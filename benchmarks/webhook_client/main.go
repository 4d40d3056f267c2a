// A closed-loop HTTPS client: each of N workers posts one body after another over one kept connection, as an API
// server does. It prints one line of JSON with the count, the failures, latencies and its own CPU time.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"sort"
	"sync"
	"syscall"
	"time"
)

type result struct {
	latencies []time.Duration
	failures  int
}

func main() {
	url := flag.String("url", "", "where to post")
	authority := flag.String("ca", "", "PEM file of the authority to trust")
	bodies := flag.String("bodies", "", "file with one body a line, posted in turn")
	want := flag.String("want", "", "text that each answer must hold")
	clients := flag.Int("clients", 1, "workers, each with one connection")
	duration := flag.Duration("duration", time.Second, "how long")
	flag.Parse()

	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(read(*authority))
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: pool},
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1.1, as for a Service
		MaxIdleConnsPerHost: *clients,
		MaxConnsPerHost:     *clients,
	}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	lines := bytes.Split(bytes.TrimSpace(read(*bodies)), []byte("\n"))
	results := make([]result, *clients)
	for worker := range results { // connections are made before the clock starts
		post(client, *url, lines[worker%len(lines)], []byte(*want))
	}

	began := time.Now()
	end := began.Add(*duration)
	var group sync.WaitGroup
	for worker := range results {
		group.Add(1)
		go func(worker int) {
			defer group.Done()
			found := &results[worker]
			for next := worker; ; next += *clients {
				sent := time.Now()
				if sent.After(end) {
					return
				}
				if post(client, *url, lines[next%len(lines)], []byte(*want)) {
					found.latencies = append(found.latencies, time.Since(sent))
				} else {
					found.failures++
				}
			}
		}(worker)
	}
	group.Wait()
	report(results, time.Since(began))
}

func read(path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return data
}

func post(client *http.Client, url string, body, want []byte) bool {
	response, err := client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return false
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return err == nil && response.StatusCode == 200 && bytes.Contains(answer, want)
}

func report(results []result, took time.Duration) {
	var all []time.Duration
	failures := 0
	for _, found := range results {
		all = append(all, found.latencies...)
		failures += found.failures
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	quantile := func(share float64) float64 {
		if len(all) == 0 {
			return 0
		}
		return all[int(share*float64(len(all)-1))].Seconds() * 1000
	}
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	cpu := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	line, _ := json.Marshal(map[string]any{
		"requests": len(all), "failures": failures, "seconds": took.Seconds(),
		"p50_ms": quantile(0.5), "p99_ms": quantile(0.99), "most_ms": quantile(1), "cpu_seconds": cpu.Seconds(),
	})
	fmt.Println(string(line))
}
