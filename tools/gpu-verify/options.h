// The command line. Pure.
#ifndef GEMINID_TOOLS_GPU_VERIFY_OPTIONS_H_
#define GEMINID_TOOLS_GPU_VERIFY_OPTIONS_H_

#include <string>
#include <vector>

#include "tools/gpu-verify/probe.h"

namespace geminid::gpu_verify {

struct Options {
  bool help = false;
  bool version = false;
  bool list = false;
  bool quick = false;
  int device = 0;
  double limit_seconds = 0;  // of the whole run
  std::string json_path;
  std::vector<Probe> probes;  // the probes to run, in the catalogue's order
};

// False, with `error` set, if the arguments (without the program's name) are wrong.
bool ParseOptions(const std::vector<std::string>& arguments, const std::vector<Probe>& catalogue,
                  Options* options, std::string* error);

std::string Usage();

}  // namespace geminid::gpu_verify

#endif  // GEMINID_TOOLS_GPU_VERIFY_OPTIONS_H_
