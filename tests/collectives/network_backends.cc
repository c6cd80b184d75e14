#include "tests/collectives/gloo_backend.h"

namespace geminid::collectives {

std::vector<Backend> BackendsUnderTest() { return {GlooBackend()}; }

std::vector<int> WorldSizesUnderTest() { return {1, 2, 3, 4}; }

}  // namespace geminid::collectives
