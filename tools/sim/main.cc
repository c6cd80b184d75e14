// geminid-sim: training in simulated time.
#include <iostream>

#include "base/standard_streams.h"
#include "tools/sim/run.h"

int main(int argc, char** argv) {
  geminid::base::PrepareStandardStreams();
  return geminid::sim::RunGeminidSim({argv + 1, argv + argc}, std::cout, std::cerr);
}
