// A Go process in a known state: other STATE.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
)

var kept [][]byte

func main() {
	switch os.Args[1] {
	case "live", "garbage":
		for i := 0; i < 40000; i++ {
			block := make([]byte, 2500)
			for at := range block {
				block[at] = 1
			}
			kept = append(kept, block)
		}
		if os.Args[1] == "garbage" {
			kept = nil
			runtime.GC()
		}
	case "mapped":
		memory, err := syscall.Mmap(-1, 0, 90000000, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			panic(err)
		}
		for at := 0; at < len(memory); at += 4096 {
			memory[at] = 1
		}
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	fmt.Printf("{\"live\": null, \"held\": null, \"other\": %d}\n", stats.HeapSys-stats.HeapReleased)
	io.ReadAll(os.Stdin)
	runtime.KeepAlive(kept)
}
