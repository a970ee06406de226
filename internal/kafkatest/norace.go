//go:build !race

package kafkatest

const raceDetector = false
