// Package connectortest is the conformance suite of connectors: one suite, run by the tests of each
// implementation against the real thing that it connects to.
//
// It is not a mock and holds no test of a particular connector. What it asserts are the numbered
// invariants of package connector.
package connectortest
