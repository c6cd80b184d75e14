// The library's own threads.
#ifndef GEMINID_CLIENT_OS_THREAD_H_
#define GEMINID_CLIENT_OS_THREAD_H_

#include <string>

namespace geminid {

// First thing in a thread of the library: gives it a name (at most 15 characters) and leaves the
// program's signals to the program's threads. Faults of its own still kill it loudly.
void PrepareThread(const std::string& name);

}  // namespace geminid

#endif  // GEMINID_CLIENT_OS_THREAD_H_
