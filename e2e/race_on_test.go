//go:build race

package e2e

// raceDetector builds the parts with the race detector too.
const raceDetector = true
