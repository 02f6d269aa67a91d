// Package schemastest makes documents that show whether two readings of the
// schemas agree: those of the corpus, and changes to them.
//
// In: the corpus under schemas/testdata. Out: objects, good and bad; what is
// said of each is the caller's to find and compare. Only tests import it.
package schemastest
