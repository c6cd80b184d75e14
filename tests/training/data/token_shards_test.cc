#include "training/data/token_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "tests/base/temporary_folder.h"

namespace geminid::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kGpt2Vocabulary = 50257;
constexpr uint64_t kLlama3Vocabulary = 128256;

// The bytes that Python's array('H') or array('I') writes.
template <typename Element>
std::string Bytes(const std::vector<Element>& elements) {
  std::string bytes;
  for (const Element element : elements) {
    for (size_t i = 0; i < sizeof(Element); ++i) {
      bytes.push_back(static_cast<char>(static_cast<uint64_t>(element) >> 8 * i & 0xff));
    }
  }
  return bytes;
}

std::string Header(int32_t magic, int32_t version, int32_t tokens) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = tokens;
  return Bytes(header);
}

class Shards : public testing::Test {
 protected:
  std::vector<int32_t> All(const std::string& path, uint64_t vocabulary) {
    const auto shards = TokenShards::Open({path}, vocabulary);
    EXPECT_TRUE(shards.ok()) << shards.status();
    std::vector<int32_t> tokens((*shards)->tokens());
    EXPECT_TRUE((*shards)->Read(0, tokens).ok());
    return tokens;
  }
  std::string Refusal(const std::string& path, uint64_t vocabulary = kGpt2Vocabulary) {
    const auto shards = TokenShards::Open({path}, vocabulary);
    EXPECT_EQ(shards.status().code(), absl::StatusCode::kInvalidArgument) << shards.status();
    return std::string(shards.status().message());
  }

  const base::TemporaryFolder folder_;
};

TEST_F(Shards, OfLlmC_AreReadAfterTheirHeader) {
  const std::string small =
      folder_.Write("a.bin", Header(20240520, 1, 3) + Bytes<uint16_t>({1, 50256, 300}));
  EXPECT_THAT(All(small, kGpt2Vocabulary), ElementsAre(1, 50256, 300));
  const std::string large =
      folder_.Write("b.bin", Header(20240801, 7, 2) + Bytes<uint32_t>({128000, 17}));
  EXPECT_THAT(All(large, kLlama3Vocabulary), ElementsAre(128000, 17));
}

TEST_F(Shards, OfNanoGpt_HaveTokensAloneOfTheSizeThatTheVocabularyNeeds) {
  const std::string path = folder_.Write("train.bin", Bytes<uint16_t>({5, 0, 1, 1}));
  EXPECT_THAT(All(path, kGpt2Vocabulary), ElementsAre(5, 0, 1, 1));
  EXPECT_THAT(All(path, kLlama3Vocabulary), ElementsAre(5, 65537));
}

TEST_F(Shards, OfAFolder_AreOneStreamByPathWhateverTheirFormat) {
  folder_.Write("data_000002.bin", Bytes<uint16_t>({6, 7}));
  folder_.Write("data_000001.bin", Header(20240520, 1, 3) + Bytes<uint16_t>({3, 4, 5}));
  folder_.Write("data_000000.bin", Bytes<uint16_t>({1, 2}));
  folder_.Write("notes.txt", "x");
  EXPECT_THAT(All(folder_.path(), 100), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  const auto shards = TokenShards::Open({folder_.path()}, 100);
  for (uint64_t first = 0; first < 7; ++first) {
    for (uint64_t count = 1; first + count <= 7; ++count) {
      std::vector<int32_t> tokens(count);
      ASSERT_TRUE((*shards)->Read(first, tokens).ok());
      for (uint64_t i = 0; i < count; ++i) {
        EXPECT_EQ(tokens[i], static_cast<int32_t>(first + i + 1));
      }
    }
  }
}

TEST_F(Shards, ThatCannotBeRight_AreNamedWithWhatIsWrong) {
  const std::string tokens = Bytes<uint16_t>({1, 2, 3});
  EXPECT_THAT(Refusal(folder_.Write("odd.bin", "12345")),
              HasSubstr("odd.bin' has 5 bytes, which is not a multiple of 2"));
  EXPECT_THAT(Refusal(folder_.Write("odd32.bin", "123456"), kLlama3Vocabulary),
              HasSubstr("not a multiple of 4"));
  EXPECT_THAT(Refusal(folder_.Write("short.bin", Header(20240520, 1, 4) + tokens)),
              HasSubstr("short.bin' has 1030 bytes, but its header announces 4 tokens, which take "
                        "1032: it was truncated"));
  EXPECT_THAT(Refusal(folder_.Write("long.bin", Header(20240520, 1, 2) + tokens)),
              HasSubstr("announces 2 tokens, which take 1028"));
  EXPECT_THAT(Refusal(folder_.Write("cut.bin", Header(20240520, 1, 3).substr(0, 100))),
              HasSubstr("truncated"));
  EXPECT_THAT(Refusal(folder_.Write("minus.bin", Header(20240520, 1, -3) + tokens)),
              HasSubstr("announces -3 tokens"));
  EXPECT_THAT(Refusal(folder_.Write("version.bin", Header(20240520, 2, 3) + tokens)),
              HasSubstr("version 2 of llm.c's format 20240520; version 1 is known"));
  EXPECT_THAT(Refusal(folder_.Write("empty.bin", "")), HasSubstr("is empty"));
  EXPECT_THAT(Refusal(folder_.Write("none.bin", Header(20240520, 1, 0))),
              HasSubstr("holds no tokens"));
  const base::TemporaryFolder without;
  EXPECT_THAT(Refusal(without.path()), HasSubstr("holds no .bin files; give --shards"));
  EXPECT_EQ(TokenShards::Open({folder_ / "nothing"}, 10).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(Shards, WithATokenOutsideOfTheVocabulary_NameTheFileAndTheByte) {
  folder_.Write("a.bin", Bytes<uint16_t>({1, 2}));
  folder_.Write("b.bin", Header(20240520, 1, 3) + Bytes<uint16_t>({3, 10, 5}));
  const auto shards = TokenShards::Open({folder_.path()}, 10);
  ASSERT_TRUE(shards.ok()) << shards.status();
  std::vector<int32_t> tokens(3);
  EXPECT_TRUE((*shards)->Read(0, tokens).ok());
  const absl::Status refused = (*shards)->Read(1, tokens);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("b.bin' has the token 10 at byte 1026, outside of the vocabulary of 10"));
}

TEST_F(Shards, OfAnotherKind_AreRefusedByItsName) {
  const std::string tokens = Bytes<uint16_t>({1, 2, 3, 4});
  const auto refusal = [&](const std::string& bytes) {
    return Refusal(folder_.Write("x.bin", bytes), 65536);
  };
  EXPECT_THAT(refusal(Header(20240522, 1, 4) + tokens),
              HasSubstr("x.bin' is not a file of tokens but an evaluation set of llm.c"));
  EXPECT_THAT(refusal(Header(20240328, 2, 4)), HasSubstr("a tokenizer of llm.c"));
  EXPECT_THAT(refusal(Header(20240326, 3, 1024)), HasSubstr("GPT-2 weights of llm.c"));
  EXPECT_THAT(refusal(Header(20250101, 1, 4)), HasSubstr("of llm.c's format 20250101"));
  EXPECT_THAT(refusal("\x93NUMPY\x01" + tokens + "x"), HasSubstr("a NumPy array"));
  EXPECT_THAT(refusal("PK\x03\x04" + tokens), HasSubstr("a zip archive"));
  folder_.Write("m.idx", "MMIDIDX more");
  EXPECT_THAT(Refusal(folder_.Write("m.bin", tokens)), HasSubstr("an indexed data set of Megatron"));
}

TEST_F(Shards, WhoseFirstTokensResembleADate_AreTokensAlone) {
  // 20240522 as two tokens, then a version that llm.c has never had.
  const std::string path = folder_.Write("a.bin", Bytes<uint16_t>({54'410, 308, 900, 1}));
  EXPECT_THAT(All(path, 65536), ElementsAre(54'410, 308, 900, 1));
}

TEST_F(Shards, ForValidation_AreLeftOutOfAFolderThatHasOthersAndSaid) {
  const auto left_out = [&](const std::vector<std::string>& paths) {
    const auto shards = TokenShards::Open(paths, 10);
    EXPECT_TRUE(shards.ok()) << shards.status();
    return std::pair((*shards)->tokens(), (*shards)->listing().left_out);
  };
  folder_.Write("d/a_train_000001.bin", Bytes<uint16_t>({1, 2, 3}));
  folder_.Write("d/a_val_000000.bin", Bytes<uint16_t>({4, 5}));
  folder_.Write("d/cheval.bin", Bytes<uint16_t>({6}));
  const auto [tokens, said] = left_out({folder_ / "d"});
  EXPECT_EQ(tokens, 4u);
  EXPECT_THAT(said, ElementsAre(HasSubstr(
                        "a_val_000000.bin' is left out, since it is for validation by its name")));
  EXPECT_EQ(left_out({folder_ / "d", folder_ / "d/a_val_000000.bin"}).first, 4u + 2u);
  folder_.Write("v/val.bin", Bytes<uint16_t>({1}));
  EXPECT_EQ(left_out({folder_ / "v"}).first, 1u);
}

// Any number of threads names the same token: the first one.
TEST_F(Shards, Checked_NameTheFirstTokenOutsideOfTheVocabulary) {
  constexpr uint64_t kTokens = (uint64_t{1} << 23) + 5;  // three blocks
  std::vector<uint16_t> tokens(kTokens, 249);
  tokens[kTokens - 1] = 250;
  tokens[(uint64_t{1} << 22) + 7] = 60000;
  folder_.Write("a.bin", Bytes<uint16_t>({1, 2, 3}));
  folder_.Write("b.bin", Header(20240520, 1, kTokens) + Bytes(tokens));
  const auto shards = TokenShards::Open({folder_.path()}, 250);
  ASSERT_TRUE(shards.ok()) << shards.status();
  for (const size_t threads : {1, 3}) {
    uint64_t last = 0;
    const absl::Status status = (*shards)->Check({.threads = threads, .on_progress = [&](uint64_t done, uint64_t) {
                                                    EXPECT_GT(done, last);
                                                    last = done;
                                                  }});
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("b.bin' has the token 60000 at byte 8389646, outside"));
  }
  EXPECT_TRUE((*shards)->Check({.part = 0, .parts = 4}).ok());
  EXPECT_THAT(std::string((*shards)->Check({.part = 3, .parts = 4}).message()),
              HasSubstr("has the token 250 at byte 16778248"));
}

TEST_F(Shards, OfWiderTokensThanTheVocabularyAsksFor_AreRefused) {
  std::vector<uint32_t> narrow(40);
  std::iota(narrow.begin(), narrow.end(), 1);
  std::vector<uint64_t> wide(narrow.begin(), narrow.end());
  const std::string of_32 = folder_.Write("of_32.bin", Bytes(narrow));
  const std::string of_64 = folder_.Write("of_64.bin", Bytes(wide));
  const auto words = [](const std::string& path, uint64_t vocabulary) {
    return std::string(TokenShards::Open({path}, vocabulary).status().message());
  };
  EXPECT_THAT(words(of_32, 100), HasSubstr("of_32.bin' has tokens of more than 2 bytes"));
  EXPECT_THAT(words(of_64, 100), HasSubstr("of_64.bin' has tokens of more than 2 bytes"));
  EXPECT_THAT(words(of_64, 100000), HasSubstr("of_64.bin' has tokens of more than 4 bytes"));
  EXPECT_EQ(words(of_32, 100000), "");
  const std::string zeros = folder_.Write("zeros.bin", Bytes(std::vector<uint16_t>(100)));
  EXPECT_EQ(words(zeros, 100), "");
}

TEST_F(Shards, ThatShrinkWhileInUse_AreAnError) {
  const std::string path = folder_.Write("a.bin", Bytes(std::vector<uint16_t>(5000, 1)));
  const auto shards = TokenShards::Open({path}, 10);
  std::filesystem::resize_file(path, 2);
  std::vector<int32_t> tokens(3);
  EXPECT_THAT(std::string((*shards)->Read(4000, tokens).message()), HasSubstr("became shorter"));
}

}  // namespace
}  // namespace geminid::trainer
