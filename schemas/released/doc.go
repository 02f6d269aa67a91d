// Package released keeps the definitions of the last release, one folder a
// version, and says what a change to them would break: objects that are stored
// or committed and were good must stay good, keep every field and mean the same.
//
// In: two sets of CustomResourceDefinitions. Out: what the second takes away,
// each with the field. It is pure, and only tests use it.
package released
