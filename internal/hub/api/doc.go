// Package api is the hub's HTTP API: typed handlers whose OpenAPI 3.1 document
// is generated from them, and streams of snapshots.
//
// In come requests with a bearer token per base path (/api/v1 people and CI,
// /pool/v1 controllers, /runner/v1 runners); what they ask for is one call of
// the store. Out go hubv1 values, Server-Sent Events and problem documents. It
// decides nothing itself, and never puts a credential or the value of a refused
// field into an answer or a log line.
package api
