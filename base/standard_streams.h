// Standard input, output and error. Their other ends may be closed, full, dead or asleep, and none
// of that may end a program that has work to save.
#ifndef GEMINID_BASE_STANDARD_STREAMS_H_
#define GEMINID_BASE_STANDARD_STREAMS_H_

#include <string_view>

namespace geminid::base {

// The first call in main() of every program. Opens closed descriptors 0, 1 and 2, so that no other
// file or socket gets their number. Then 0 reads as empty, writes to 1 fail as before, and writes
// to 2 are discarded. From now on a write to a pipe without a reader, or beyond `ulimit -f`,
// returns an error and does not end the process.
void PrepareStandardStreams();

// For a child, before exec: the new program expects the default signals.
void RestoreStreamSignals();

// Writes to standard error, on any thread. Text that cannot be written is lost silently, since
// there is nowhere to report it. If the reader stops reading, waits for one second; after that its
// text is discarded at once until it reads again.
void WriteStandardError(std::string_view text);

}  // namespace geminid::base

#endif  // GEMINID_BASE_STANDARD_STREAMS_H_
