#ifndef GEMINID_TESTS_COLLECTIVES_GLOO_BACKEND_H_
#define GEMINID_TESTS_COLLECTIVES_GLOO_BACKEND_H_

#include "tests/collectives/world.h"

namespace geminid::collectives {

Backend GlooBackend();

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_COLLECTIVES_GLOO_BACKEND_H_
