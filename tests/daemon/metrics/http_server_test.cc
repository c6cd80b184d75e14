#include "daemon/metrics/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "absl/strings/numbers.h"
#include "base/unique_fd.h"
#include "daemon/os/event.h"

namespace geminid::metrics {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

HttpResponse Echo(const std::string& path) {
  HttpResponse response;
  response.body = "you asked for " + path;
  return response;
}

TEST(Respond, Get_AnswersWithTheBody) {
  const std::string answer = Respond("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n", Echo);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 22\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nyou asked for /metrics"));
}

TEST(Respond, Head_AnswersWithoutTheBody) {
  EXPECT_THAT(Respond("HEAD /metrics HTTP/1.1\r\n\r\n", Echo), EndsWith("\r\n\r\n"));
}

TEST(Respond, OtherMethodsAndGarbage_AreRefused) {
  EXPECT_THAT(Respond("POST / HTTP/1.1\r\n\r\n", Echo), StartsWith("HTTP/1.1 405 "));
  for (const char* bad : {"", "\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/2\r\n\r\n",
                          "GET metrics HTTP/1.1\r\n\r\n", "GET / a HTTP/1.1\r\n\r\n"}) {
    EXPECT_THAT(Respond(bad, Echo), StartsWith("HTTP/1.1 400 ")) << bad;
  }
}

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<os::EventLoop>> loop = os::EventLoop::Create();
    ASSERT_TRUE(loop.ok());
    loop_ = *std::move(loop);
  }

  static uint16_t PortOf(const HttpServer& server) {
    uint32_t port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(server.address().substr(server.address().rfind(':') + 1), &port));
    return static_cast<uint16_t>(port);
  }

  static base::UniqueFd Connect(uint16_t port) {
    base::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }

  std::string ReadAll(const base::UniqueFd& fd) {
    std::string text;
    char buffer[4096];
    while (true) {
      loop_->RunOnce(0);
      const ssize_t got = ::recv(fd.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
      if (got == 0) return text;
      if (got > 0) text.append(buffer, static_cast<size_t>(got));
      if (got < 0 && errno != EAGAIN) return text;
    }
  }

  std::unique_ptr<os::EventLoop> loop_;
};

TEST_F(HttpServerTest, Request_InPieces_IsAnsweredOnceComplete) {
  auto server = HttpServer::Create("127.0.0.1", 0, loop_.get(), Echo);
  ASSERT_TRUE(server.ok()) << server.status();
  base::UniqueFd fd = Connect(PortOf(**server));
  for (const std::string piece : {"GET /a", "b HTTP/1.1\r\n", "\r\n"}) {
    ASSERT_EQ(::send(fd.get(), piece.data(), piece.size(), 0), static_cast<ssize_t>(piece.size()));
    loop_->RunOnce(0);
  }
  EXPECT_THAT(ReadAll(fd), EndsWith("you asked for /ab"));
}

TEST_F(HttpServerTest, LargeBody_ArrivesWhole) {
  const std::string body(8 << 20, 'x');
  auto server = HttpServer::Create("127.0.0.1", 0, loop_.get(), [&](const std::string&) {
    HttpResponse response;
    response.body = body;
    return response;
  });
  ASSERT_TRUE(server.ok());
  base::UniqueFd fd = Connect(PortOf(**server));
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_GT(::send(fd.get(), request.data(), request.size(), 0), 0);
  const std::string answer = ReadAll(fd);
  EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, body.size());
}

TEST_F(HttpServerTest, EndlessHead_IsCut) {
  auto server = HttpServer::Create("127.0.0.1", 0, loop_.get(), Echo);
  ASSERT_TRUE(server.ok());
  base::UniqueFd fd = Connect(PortOf(**server));
  const std::string flood(kMaxRequestBytes + 2048, 'x');
  ASSERT_GT(::send(fd.get(), flood.data(), flood.size(), 0), 0);
  EXPECT_THAT(ReadAll(fd), StartsWith("HTTP/1.1 431 "));
}

TEST_F(HttpServerTest, SilentConnections_ExpireAndAreBounded) {
  auto server = HttpServer::Create("127.0.0.1", 0, loop_.get(), Echo);
  ASSERT_TRUE(server.ok());
  EXPECT_FALSE((*server)->NextDeadline().has_value());
  std::vector<base::UniqueFd> silent;
  for (size_t i = 0; i < kMaxConnections + 5; ++i) {
    silent.push_back(Connect(PortOf(**server)));
    loop_->RunOnce(1000);
  }
  EXPECT_EQ(ReadAll(silent[0]), "") << "the oldest was closed for a newer one";
  ASSERT_TRUE((*server)->NextDeadline().has_value());
  (*server)->Expire(os::MonotonicNanoseconds() + kConnectionNanoseconds);
  EXPECT_FALSE((*server)->NextDeadline().has_value());
  EXPECT_EQ(ReadAll(silent.back()), "");
}

TEST_F(HttpServerTest, PortInUse_IsAnError) {
  auto first = HttpServer::Create("127.0.0.1", 0, loop_.get(), Echo);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(HttpServer::Create("127.0.0.1", PortOf(**first), loop_.get(), Echo).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(HttpServerTest, HostName_IsRefused) {
  EXPECT_EQ(HttpServer::Create("localhost", 0, loop_.get(), Echo).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace geminid::metrics
