// Whether tests run their thorough form: more seeds and larger shapes. tools/test --long sets it.
#ifndef GEMINID_TESTS_BASE_LONG_TESTS_H_
#define GEMINID_TESTS_BASE_LONG_TESTS_H_

#include <cstdlib>

namespace geminid {

inline bool LongTests() { return std::getenv("GEMINID_TESTS_LONG") != nullptr; }

}  // namespace geminid

#endif  // GEMINID_TESTS_BASE_LONG_TESTS_H_
