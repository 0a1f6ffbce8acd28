//go:build race

package store

// raceDetector tells that the race detector is on: it makes code ten times
// slower and allocates on its own.
const raceDetector = true
