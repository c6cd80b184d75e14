// A request of the metrics port.
#include <string>

#include "daemon/metrics/http_server.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string answer = geminid::metrics::Respond(
      std::string(reinterpret_cast<const char*>(data), size),
      [](const std::string&) { return geminid::metrics::HttpResponse(); });
  geminid::fuzz::Require(answer.starts_with("HTTP/1.1 "), "every request gets an answer");
  return 0;
}
