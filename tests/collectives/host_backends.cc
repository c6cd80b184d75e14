#include "tests/collectives/world.h"

namespace geminid::collectives {

std::vector<Backend> BackendsUnderTest() {
  return {LocalBackend(), ShmBackend(), ShmSmallPiecesBackend()};
}

std::vector<int> WorldSizesUnderTest() { return {1, 2, 3, 4}; }

}  // namespace geminid::collectives
