#include "daemon/service/sessions/token.h"

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"

namespace geminid::service {
namespace {

TEST(Token, New_IsDifferentEachTime) {
  absl::StatusOr<Token> a = NewToken();
  absl::StatusOr<Token> b = NewToken();
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_FALSE(ConstantTimeEqual(*a, *b));
  EXPECT_TRUE(ConstantTimeEqual(*a, *a));
}

TEST(Token, Hex_RoundTrips) {
  Token token;
  for (size_t i = 0; i < token.size(); ++i) token[i] = static_cast<uint8_t>(i * 7);
  Token back = {};
  ASSERT_TRUE(FromHex(
      absl::BytesToHexString({reinterpret_cast<const char*>(token.data()), token.size()}), &back));
  EXPECT_EQ(back, token);
}

TEST(Token, FromHex_OtherTexts_AreRefused) {
  Token token;
  const std::string good(64, 'a');
  EXPECT_TRUE(FromHex(good, &token));
  EXPECT_FALSE(FromHex("", &token));
  EXPECT_FALSE(FromHex(good.substr(1), &token));
  EXPECT_FALSE(FromHex(good + "a", &token));
  EXPECT_FALSE(FromHex(std::string(64, 'A'), &token));
  EXPECT_FALSE(FromHex(std::string(64, '\0'), &token));
}

TEST(Token, ConstantTimeEqual_SeesEveryBit) {
  Token a = {};
  for (size_t i = 0; i < a.size() * 8; ++i) {
    Token b = a;
    b[i / 8] = static_cast<uint8_t>(b[i / 8] ^ (1u << (i % 8)));
    EXPECT_FALSE(ConstantTimeEqual(a, b)) << i;
  }
}

}  // namespace
}  // namespace geminid::service
