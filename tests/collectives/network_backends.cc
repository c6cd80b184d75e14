#include "tests/collectives/gloo_backend.h"

namespace geminid::collectives {

std::vector<Backend> BackendsUnderTest() { return {GlooBackend()}; }

}  // namespace geminid::collectives
