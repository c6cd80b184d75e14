// Rates of work within a window of time that several processes agree on, and the exchange of rates
// as text.
#ifndef GEMINID_TOOLS_GPU_VERIFY_WINDOW_H_
#define GEMINID_TOOLS_GPU_VERIFY_WINDOW_H_

#include <functional>
#include <string>
#include <vector>

#include "tools/gpu-verify/device.h"

namespace geminid::gpu_verify {

// From begin to end, in seconds of Now(), the common clock of all processes.
struct Window {
  double begin = 0;
  double end = 0;
};

// Keeps two calls of `enqueue` in flight on the stream until the window ends; returns the calls
// that completed within the window, per second. The stream is idle afterwards.
double RateWithin(const Gpu& gpu, const Stream& stream, Window window,
                  const std::function<void()>& enqueue);

// The numbers of a text, separated by blanks, up to the first word that is no number.
std::vector<double> ParseNumbers(const std::string& text);

}  // namespace geminid::gpu_verify

#endif  // GEMINID_TOOLS_GPU_VERIFY_WINDOW_H_
