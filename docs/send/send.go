// Delivers lines of Influx line protocol, as they come on standard input, with nothing but Go's standard library:
//
//	echo "room,floor=2 temperature=21.5" | SPM_URL=http://localhost:8000 SPM_TOKEN=spm_… go run send.go
//
// In bodies of 5,000 lines, each under an id of its own: what is sent again after a failure is counted once.
// Lines without a time get the server's; give your own in milliseconds if what you send may have to wait.
package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

var client = &http.Client{Timeout: 30 * time.Second}

// attempt sends one body: whether that is done with, whether the server took it, and else how long to wait.
func attempt(body []byte, id string) (done, taken bool, wait time.Duration) {
	request, err := http.NewRequest("POST", os.Getenv("SPM_URL")+"/write?precision=ms", bytes.NewReader(body))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return true, false, 0
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("SPM_TOKEN"))
	request.Header.Set("Content-Encoding", "gzip")
	request.Header.Set("X-Message-Id", id)
	answer, err := client.Do(request)
	if err != nil { // not there
		fmt.Fprintln(os.Stderr, err)
		return false, false, 0
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	if answer.StatusCode == 204 {
		return true, true, 0
	}
	fmt.Fprintln(os.Stderr, answer.Status, string(text))
	if answer.StatusCode < 500 && answer.StatusCode != 408 && answer.StatusCode != 429 {
		return true, false, 0 // it refuses lines, which saying again would not help
	}
	seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
	return false, false, time.Duration(seconds) * time.Second
}

// deliver sends one body until the server has it for good, or has refused it.
func deliver(lines []byte) bool {
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	writer.Write(lines)
	writer.Close()
	id := make([]byte, 16)
	rand.Read(id)
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		done, taken, wait := attempt(packed.Bytes(), hex.EncodeToString(id))
		if done {
			return taken
		}
		time.Sleep(max(pause, wait))
	}
}

func main() {
	input, lines, count, refused := bufio.NewReader(os.Stdin), []byte{}, 0, false
	for {
		line, err := input.ReadBytes('\n')
		lines, count = append(lines, line...), count+1
		if len(lines) > 0 && (count == 5000 || err != nil) {
			refused = !deliver(lines) || refused
			lines, count = nil, 0
		}
		if err != nil {
			break
		}
	}
	if refused {
		os.Exit(1)
	}
}
