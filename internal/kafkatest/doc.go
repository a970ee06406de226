// Package kafkatest gives tests a broker: kfake, an in-process double, and Apache Kafka, the real thing.
//
// It is not part of the product: only tests import it. kfake is a fine double and no proof, so a test
// goes through Run, which runs it against both, and what cannot run against one of them says why
// (Broker.Except).
//
// Apache Kafka comes from one of two places: from WEIR_KAFKA_BROKERS (transaction.version 2) and
// WEIR_KAFKA_BROKERS_TV1 (transaction.version 1), which scripts/kafka/kafka.sh exec sets for a whole
// run of tests; or, where these are not set and Java and Maven are there, from a node that the first
// test of a process which needs one starts, and which ends with the process. Where there is neither,
// the test is skipped, saying so; with CI=true it fails.
//
// Between a test and its broker there can be a Proxy, which does to chosen requests what networks and dying brokers
// do (Fault), and sees each of them hit. What a case with faults has found, it notes with
// package proof.
//
// Invariants:
//
//  1. A name of a topic is used by one test alone, so tests and packages share a node.
//  2. What ran against which broker, what was left out and why is in the file named by WEIR_KAFKA_REPORT, one line a
//     run; the program in the folder report prints it.
//  3. A fault counts only where it was hit: a test whose fault was not hit fails.
//  4. No node outlives the process that started it, even one that is killed.
package kafkatest
