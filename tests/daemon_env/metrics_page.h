// A daemon's answers on its metrics socket.
#ifndef GEMINID_TESTS_DAEMON_ENV_METRICS_PAGE_H_
#define GEMINID_TESTS_DAEMON_ENV_METRICS_PAGE_H_

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "daemon/os/unix_socket.h"

namespace geminid::testing {

// The page with its header; empty, and a failure of the test, if nobody answers.
inline std::string FetchPage(const std::string& socket, const std::string& path) {
  const absl::StatusOr<base::UniqueFd> fd = os::ConnectUnix(SOCK_STREAM, socket);
  EXPECT_TRUE(fd.ok()) << fd.status();
  if (!fd.ok()) return "";
  const std::string request = "GET " + path + " HTTP/1.1\r\n\r\n";
  EXPECT_EQ(::write(fd->get(), request.data(), request.size()),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t got; (got = ::read(fd->get(), buffer, sizeof(buffer))) > 0;) {
    answer.append(buffer, static_cast<size_t>(got));
  }
  return answer;
}

}  // namespace geminid::testing

#endif  // GEMINID_TESTS_DAEMON_ENV_METRICS_PAGE_H_
