// Standard input, output and error, whose other ends are not ours: they may be closed, full, dead
// or asleep, and none of that ends a program that has work to save.
#ifndef GEMINID_BASE_STANDARD_STREAMS_H_
#define GEMINID_BASE_STANDARD_STREAMS_H_

#include <string_view>

namespace geminid::base {

// First thing in main() of every program. Descriptors 0, 1 and 2 that are closed lead nowhere from
// then on, so that no file or socket of ours gets their number: 0 is at its end, what is written to
// 1 fails as before, what is written to 2 vanishes. A pipe without a reader, or a file that is too
// large for `ulimit -f`, is an error of the call that writes, not the end of the process.
void PrepareStandardStreams();

// In a child, before it becomes another program: that one expects the usual signals.
void RestoreStreamSignals();

// Writes to standard error; any thread. What cannot be written is lost without a word: there is
// nowhere to report it. A reader that has stopped reading is waited for a second; from then on, and
// until it reads again, its words are lost without waiting.
void WriteStandardError(std::string_view text);

}  // namespace geminid::base

#endif  // GEMINID_BASE_STANDARD_STREAMS_H_
