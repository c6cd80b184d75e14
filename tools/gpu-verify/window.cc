#include "tools/gpu-verify/window.h"

#include <sstream>

namespace geminid::gpu_verify {

double RateWithin(const Gpu& gpu, const Stream& stream, Window window,
                  const std::function<void()>& enqueue) {
  const Event events[] = {Event(gpu), Event(gpu)};
  int completed = 0;
  for (int call = 0;; ++call) {
    const Event& event = events[call % 2];
    if (call >= 2) {
      event.Wait();
      const double now = Now();
      if (now >= window.end) break;
      if (now >= window.begin) ++completed;
    }
    enqueue();
    event.Record(stream);
  }
  stream.Synchronize();
  return completed / (window.end - window.begin);
}

std::vector<double> ParseNumbers(const std::string& text) {
  std::istringstream in(text);
  std::vector<double> numbers;
  for (double number; in >> number;) numbers.push_back(number);
  return numbers;
}

}  // namespace geminid::gpu_verify
