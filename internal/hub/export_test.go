package hub

// TidyDue asks one after the other whether memory is given back.
func TidyDue() func(open int64) bool { return new(tidiness).due }

// EndInSilence makes the system end a connection after Silence.
var EndInSilence = endInSilence

// Silence is how long a peer may say nothing.
const Silence = silence
