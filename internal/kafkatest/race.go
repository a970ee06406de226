//go:build race

package kafkatest

const raceDetector = true
