// The width of the terminal on which people read the progress line.
#ifndef GEMINID_TRAINING_LOGS_TERMINAL_H_
#define GEMINID_TRAINING_LOGS_TERMINAL_H_

#include <cstddef>

namespace geminid::trainer {

// The width of stderr if it is a terminal, else of the terminal that controls this process: a rank
// writes into a pipe, from which its launcher passes it on. 80 where there is none.
size_t TerminalColumns();

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LOGS_TERMINAL_H_
