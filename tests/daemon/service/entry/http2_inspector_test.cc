#include "daemon/service/entry/http2_inspector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/service/entry/http2_budget.h"
#include "tests/daemon_env/raw_http2.h"

namespace geminid::service {
namespace {

using namespace ::geminid::testing;  // NOLINT(google-build-using-namespace): frames and their types
using ::testing::HasSubstr;

constexpr core::Rate kCalls = {.per_second = 100, .burst = 400};

core::Time At(double seconds) {
  return core::Time::FromNanoseconds(static_cast<int64_t>(seconds * 1e9));
}

absl::Status Look(const std::string& bytes, Http2Cost* cost) {
  Http2Inspector inspector;
  return inspector.Look(bytes, cost);
}

TEST(Http2Inspector, OrdinaryCall_PassesAndIsCountedInWhateverPiecesItComes) {
  const std::string call = Http2Beginning() +
                           Frame(FrameType::kHeaders, kEndHeaders, 1, CallHeaders("/a")) +
                           Frame(FrameType::kData, kEndStream, 1, std::string(5000, 'x')) +
                           Frame(FrameType::kPing, 0, 0, "12345678") +
                           Frame(FrameType::kPing, kAnswer, 0, "12345678") +
                           Frame(FrameType::kResetStream, 0, 1, std::string(4, '\0'));
  for (const size_t piece : {size_t{1}, size_t{7}, call.size()}) {
    Http2Inspector inspector;
    Http2Cost cost;
    for (size_t at = 0; at < call.size(); at += piece) {
      const std::string part = call.substr(at, piece);
      ASSERT_TRUE(inspector.Look(part, &cost).ok()) << at;
    }
    EXPECT_EQ(cost.streams, 1u);
    EXPECT_EQ(cost.resets, 1u);
    EXPECT_EQ(cost.pings, 1u);
    EXPECT_EQ(cost.frames, 5u);  // settings, headers, ping, its answer, reset
  }
}

TEST(Http2Inspector, BeginningOfSomethingElse_IsRefusedAtItsFirstByte) {
  Http2Cost cost;
  EXPECT_FALSE(Look("GET / HTTP/1.1\r\n", &cost).ok());
  EXPECT_FALSE(Look("PRI * HTTP/2.1", &cost).ok());
}

TEST(Http2Inspector, HeadersAndContinuations_ArePassedUpToTheirLimitAndNoFurther) {
  const auto block = [](size_t first, size_t more) {
    return Http2Beginning() + Frame(FrameType::kHeaders, 0, 1, std::string(first, 'x')) +
           Frame(FrameType::kContinuation, kEndHeaders, 1, std::string(more, 'x'));
  };
  Http2Cost cost;
  EXPECT_TRUE(Look(block(kMaxHeaderBlockBytes - 1, 1), &cost).ok());
  const absl::Status status = Look(block(kMaxHeaderBlockBytes - 1, 2), &cost);
  EXPECT_THAT(status.message(), HasSubstr("headers of 16385 bytes in 2 frames; 16384 bytes"));
}

// Empty continuations cost work too.
TEST(Http2Inspector, HeadersInTooManyFrames_AreRefused) {
  std::string text = Http2Beginning() + Frame(FrameType::kHeaders, 0, 1, "");
  for (uint32_t i = 1; i < kMaxHeaderBlockFrames; ++i) {
    text += Frame(FrameType::kContinuation, 0, 1, "");
  }
  Http2Cost cost;
  EXPECT_TRUE(Look(text, &cost).ok());
  EXPECT_FALSE(Look(text + Frame(FrameType::kContinuation, 0, 1, ""), &cost).ok());
}

TEST(Http2Inspector, NextHeaders_HaveTheirWholeLimitAgain) {
  const std::string headers =
      Frame(FrameType::kHeaders, kEndHeaders, 1, std::string(kMaxHeaderBlockBytes, 'x'));
  Http2Cost cost;
  EXPECT_TRUE(Look(Http2Beginning() + headers + headers, &cost).ok());
}

TEST(Http2Inspector, FramesThatNoClientSends_AreRefused) {
  const std::string headers = Frame(FrameType::kHeaders, 0, 1, "");
  for (const std::string& bad :
       {Frame(FrameType::kContinuation, kEndHeaders, 1, ""),
        headers + Frame(FrameType::kContinuation, kEndHeaders, 3, ""),
        headers + Frame(FrameType::kPing, 0, 0, "12345678"), headers + headers,
        Frame(FrameType::kHeaders, kEndHeaders, 0, ""),
        Frame(FrameType::kPushPromise, kEndHeaders, 1, ""),
        Frame(FrameType::kSettings, 0, 0, std::string(16385, 'x'))}) {
    Http2Cost cost;
    EXPECT_FALSE(Look(Http2Beginning() + bad, &cost).ok());
  }
}

TEST(Http2Budget, ResetsUpToTheBurst_WaitForNothing) {
  Http2Budget budget;
  budget.Charge({.resets = 400}, kCalls, At(1));
  EXPECT_EQ(budget.NanosecondsLeft(kCalls, At(1)), 0);
  budget.Charge({.resets = 50}, kCalls, At(1));
  EXPECT_NEAR(static_cast<double>(budget.NanosecondsLeft(kCalls, At(1))), 0.5e9, 10);
  EXPECT_EQ(budget.NanosecondsLeft(kCalls, At(1.51)), 0);
  EXPECT_FALSE(budget.IsUnused(kCalls, At(1.51)));
  EXPECT_TRUE(budget.IsUnused(kCalls, At(6)));
}

TEST(Http2Budget, StreamsAndFrames_FollowTheRateOfCalls) {
  Http2Budget budget;
  budget.Charge({.streams = 800, .frames = 8000}, kCalls, At(1));
  EXPECT_EQ(budget.NanosecondsLeft(kCalls, At(1)), 0);
  budget.Charge({.streams = 200}, kCalls, At(1));
  EXPECT_NEAR(static_cast<double>(budget.NanosecondsLeft(kCalls, At(1))), 1e9, 10);
  budget.Charge({.frames = 4000}, kCalls, At(1));
  EXPECT_NEAR(static_cast<double>(budget.NanosecondsLeft(kCalls, At(1))), 2e9, 10);
}

// A daemon that allows one call a second still lets clients connect.
TEST(Http2Budget, OfADaemonThatAllowsFewCalls_IsThatOfFifty) {
  Http2Budget budget;
  budget.Charge({.streams = 400, .frames = 4000}, {.per_second = 1, .burst = 4}, At(1));
  EXPECT_EQ(budget.NanosecondsLeft({.per_second = 1, .burst = 4}, At(1)), 0);
}

}  // namespace
}  // namespace geminid::service
