#include "training/data/images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "tests/base/temporary_folder.h"
#include "tests/training/data/image_files.h"
#include "training/data/batches.h"
#include "training/data/data_sum.h"

namespace geminid::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr ImageShape kShape = {.side = 4, .patch = 2, .channels = 3};
constexpr uint64_t kClasses = 5;
constexpr uint64_t kElements = 3 * 4 * 4;

std::vector<float> Counting(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

class ImageFiles : public testing::Test {
 protected:
  std::string Write(const std::vector<RawTensor>& tensors, const std::string& name = "a") {
    return folder_.Write(name + ".safetensors", TensorFileOf(tensors));
  }
  static absl::StatusOr<std::unique_ptr<Images>> Open(const std::string& path) {
    return Images::Open({path}, kShape, kClasses);
  }
  std::string Refusal(const std::vector<RawTensor>& tensors) {
    const auto images = Open(Write(tensors));
    EXPECT_EQ(images.status().code(), absl::StatusCode::kInvalidArgument) << images.status();
    return std::string(images.status().message());
  }
  static std::vector<float> PatchesOf(const Images& images, uint64_t image) {
    std::vector<float> patches(kElements);
    EXPECT_TRUE(images.ReadPatches(image, patches).ok());
    return patches;
  }

  const base::TemporaryFolder folder_;
};

// Element [channel, y, x] of the patch [py, px], one by one.
TEST_F(ImageFiles, PatchesOfFloats_AreThePixelsOfEachPatchByChannelRowAndColumn) {
  const auto images =
      Open(Write({Floats("images", {2, 3, 4, 4}, Counting(2 * kElements)), Labels({4, 0})}));
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_EQ((*images)->tokens(), 2u);
  EXPECT_STREQ((*images)->unit(), "images");
  std::vector<int32_t> labels(2);
  ASSERT_TRUE((*images)->Read(0, labels).ok());
  EXPECT_THAT(labels, ElementsAre(4, 0));
  for (size_t image = 0; image < 2; ++image) {
    const std::vector<float> patches = PatchesOf(**images, image);
    size_t at = 0;
    for (size_t py = 0; py < 2; ++py) {
      for (size_t px = 0; px < 2; ++px) {
        for (size_t c = 0; c < 3; ++c) {
          for (size_t y = 0; y < 2; ++y) {
            for (size_t x = 0; x < 2; ++x) {
              const size_t pixel = ((image * 3 + c) * 4 + 2 * py + y) * 4 + 2 * px + x;
              EXPECT_EQ(patches[at++], static_cast<float>(pixel));
            }
          }
        }
      }
    }
  }
}

TEST_F(ImageFiles, PatchesOfBytes_AreNormalisedByTheMomentsOfTheFileOrTheUsualOnes) {
  std::vector<uint8_t> bytes(kElements);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(5 * i);
  const RawTensor pixels = {"images", "U8", {1, 3, 4, 4}, BytesOf(bytes)};
  const auto usual = Open(Write({pixels, Labels({1})}));
  const std::vector<float> mean = {0.25F, 0.5F, 0.75F}, std = {0.5F, 0.25F, 2.0F};
  const auto own =
      Open(Write({pixels, Labels({1}), Floats("mean", {3}, mean), Floats("std", {3}, std)}, "b"));
  ASSERT_TRUE(usual.ok() && own.ok()) << usual.status() << own.status();
  const std::vector<float> of_usual = PatchesOf(**usual, 0), of_own = PatchesOf(**own, 0);
  // The first pixel of each patch's channels: [c, 2 py, 2 px].
  for (size_t patch = 0; patch < 4; ++patch) {
    for (size_t c = 0; c < 3; ++c) {
      const size_t at = patch * 12 + c * 4;
      const size_t pixel = (c * 4 + patch / 2 * 2) * 4 + patch % 2 * 2;
      const double share = static_cast<double>(bytes[pixel]) / 255;
      EXPECT_NEAR(of_usual[at], 2 * share - 1, 1e-6);
      EXPECT_NEAR(of_own[at], (share - mean[c]) / std[c], 1e-6);
    }
  }
}

TEST_F(ImageFiles, OfAFolder_AreOneStreamByPath) {
  for (int file = 0; file < 3; ++file) {
    Write({Floats("images", {2, 3, 4, 4}, std::vector<float>(2 * kElements, 1.0F * file)),
           Labels({file, file + 1})},
          std::string(1, static_cast<char>('c' - file)));
  }
  const auto images = Open(folder_.path());
  ASSERT_TRUE(images.ok()) << images.status();
  std::vector<int32_t> labels(6);
  ASSERT_TRUE((*images)->Read(0, labels).ok());
  EXPECT_THAT(labels, ElementsAre(2, 3, 1, 2, 0, 1));
  for (uint64_t i = 0; i < 6; ++i) EXPECT_EQ(PatchesOf(**images, i)[7], 2.0F - i / 2);
  EXPECT_EQ((*images)->listing().files.size(), 3u);
}

TEST_F(ImageFiles, OfAnotherShape_AreRefusedWithWhatWouldBeRight) {
  const auto refusal = [&](const std::vector<uint64_t>& shape, const std::string& dtype = "U8") {
    uint64_t elements = 1;
    for (const uint64_t size : shape) elements *= size;
    const size_t bytes = dtype == "U8" ? 1 : dtype == "F16" ? 2 : 4;
    return Refusal({{"images", dtype, shape, std::string(elements * bytes, '\0')},
                    Labels(std::vector<int64_t>(shape[0]))});
  };
  EXPECT_THAT(refusal({2, 3, 6, 4}), HasSubstr("a.safetensors' has images of 6 x 4 pixels, and the "
                                               "model reads 4 x 4 (image_size); resize them"));
  EXPECT_THAT(refusal({2, 1, 4, 4}),
              HasSubstr("of 1 channel as grayscale images have; the model reads 3. Save "
                        "images.expand(-1, 3, -1, -1).contiguous(), or give --channels 1"));
  EXPECT_THAT(refusal({2, 4, 4, 4}), HasSubstr("of 4 channels; the model reads 3. Save images[:, "
                                               ":3]"));
  EXPECT_THAT(refusal({2, 8, 8, 3}), HasSubstr("images.permute(0, 3, 1, 2).contiguous()"));
  EXPECT_THAT(refusal({2, 4, 4}), HasSubstr("without channels; save images.unsqueeze(1)"));
  EXPECT_THAT(refusal({2, 48}), HasSubstr("it must be [n, channels, height, width]"));
  EXPECT_THAT(refusal({0, 3, 4, 4}), HasSubstr("holds no images"));
  EXPECT_THAT(refusal({2, 3, 4, 4}, "F16"), HasSubstr("'images' of dtype F16; U8 and F32"));
}

TEST_F(ImageFiles, WithLabelsThatCannotBe_AreRefusedByTheLabel) {
  const RawTensor images = Floats("images", {2, 3, 4, 4}, Counting(2 * kElements));
  EXPECT_THAT(Refusal({images, Labels({4, 5})}),
              HasSubstr("has the label 5 at image 1, and the model has 5 classes, 0 to 4; give "
                        "--classes the number of labels"));
  EXPECT_THAT(Refusal({images, Labels({-1, 0})}), HasSubstr("has the label -1 at image 0"));
  EXPECT_THAT(Refusal({images, Labels({1})}), HasSubstr("of the shape [1] for 2 images"));
  EXPECT_THAT(Refusal({images, {"labels", "I32", {2}, std::string(8, '\0')}}),
              HasSubstr("'labels' of dtype I32; I64 is read: save labels.to(torch.int64)"));
  EXPECT_THAT(Refusal({images}), HasSubstr("has no tensor 'labels'; it has 'images'"));
  EXPECT_THAT(Refusal({Labels({1, 2})}), HasSubstr("has no tensor 'images'"));
}

TEST_F(ImageFiles, ThatAreNone_AreRefused) {
  const auto opened = Open(folder_.Write("x.safetensors", "\x89PNG, and more of a picture"));
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("must be a safetensors file"));
  EXPECT_EQ(Open(folder_ / "nothing").status().code(), absl::StatusCode::kNotFound);
  const std::vector<RawTensor> good = {{"images", "U8", {1, 3, 4, 4}, std::string(48, 'x')},
                                       Labels({1})};
  std::vector<RawTensor> moments = good;
  moments.push_back(Floats("std", {3}, {0.5F, 0, 1}));
  EXPECT_THAT(Refusal(moments), HasSubstr("for channel 1 the mean 0.5 and the std 0"));
  moments.back() = Floats("std", {1}, {0.5F});
  EXPECT_THAT(Refusal(moments), HasSubstr("it must be F32 [3]"));
}

TEST_F(ImageFiles, WithAPixelThatIsNoNumber_AreCheckedBeforeTheFirstStepWhateverTheThreads) {
  std::vector<float> pixels = Counting(3 * kElements);
  const auto check = [&](size_t threads) {
    const auto images = Open(Write({Floats("images", {3, 3, 4, 4}, pixels), Labels({0, 1, 2})}));
    return (*images)->Check({.threads = threads});
  };
  EXPECT_TRUE(check(2).ok());
  pixels[2 * kElements + 16 + 4 * 2 + 3] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(std::string(check(1).message()),
              HasSubstr("a pixel that is infinite, of image 2 at channel 1, row 2, column 3"));
  pixels[kElements] = std::nanf("");
  for (const size_t threads : {1, 2}) {
    EXPECT_THAT(std::string(check(threads).message()),
                HasSubstr("a pixel that is NaN, of image 1 at channel 0, row 0, column 0"));
  }
}

TEST_F(ImageFiles, InAnEpoch_ComeOnceEachWhateverTheNumberOfRanks) {
  std::vector<int64_t> labels;
  std::vector<float> pixels;
  for (int64_t i = 0; i < 12; ++i) {
    labels.push_back(i % 5);
    pixels.insert(pixels.end(), kElements, static_cast<float>(i));
  }
  const auto images = Open(Write({Floats("images", {12, 3, 4, 4}, pixels), Labels(labels)}));
  ASSERT_TRUE(images.ok()) << images.status();
  BatchPlan plan = {.seed = 3,
                    .sampling = Sampling::kShuffle,
                    .context = kShape.tokens(),
                    .batch = 4,
                    .image = kShape};
  std::vector<float> of_one, of_two;
  for (plan.world_size = 1; plan.world_size <= 2; ++plan.world_size) {
    for (uint64_t step = 0; step < 3; ++step) {
      for (plan.rank = 0; plan.rank < plan.world_size; ++plan.rank) {
        auto batches = Batches::Create(TokenRange::All(**images), plan);
        ASSERT_TRUE(batches.ok()) << batches.status();
        EXPECT_EQ(batches->samples_per_epoch(), 12u);
        EXPECT_EQ(batches->targets_per_sequence(), 1u);
        const MicroBatch batch = *batches->Get(step, 0);
        ASSERT_EQ(batch.shape.sequences, 4 / plan.world_size);
        EXPECT_TRUE(batch.tokens.empty());
        for (size_t i = 0; i < batch.shape.sequences; ++i) {
          const float image = batch.patches[i * kElements];
          (plan.world_size == 1 ? of_one : of_two).push_back(image);
          for (size_t t = 0; t < kShape.tokens(); ++t) {
            EXPECT_EQ(batch.targets[i * kShape.tokens() + t],
                      t == 0 ? static_cast<int32_t>(image) % 5 : kNoTarget);
          }
        }
      }
    }
  }
  EXPECT_EQ(std::set<float>(of_one.begin(), of_one.end()).size(), 12u);
  EXPECT_EQ(of_two, of_one);
}

TEST_F(ImageFiles, HeldOutForValidation_AreTheLastOnes) {
  const std::string path =
      Write({Floats("images", {5, 3, 4, 4}, Counting(5 * kElements)), Labels({0, 1, 2, 3, 4})});
  const auto images = Open(path);
  const auto split = SplitTokens(**images, 0.2, kShape.tokens());
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->training.tokens, 4u);
  auto held =
      Batches::Create(split->held_out, {.context = kShape.tokens(), .batch = 1, .image = kShape});
  ASSERT_TRUE(held.ok()) << held.status();
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(held->GetEven(i, 3)->targets[0], 4);
  EXPECT_THAT(std::string(SplitTokens(**images, 0.05, kShape.tokens()).status().message()),
              HasSubstr("leaves validation 0 images, but a run needs at least one"));
}

// A run that is resumed recognises its images by labels and pixels.
TEST_F(ImageFiles, SumOfImages_ChangesWithAnyLabelAndPixel) {
  std::vector<float> pixels = Counting(3 * kElements);
  std::vector<int64_t> labels = {0, 1, 2};
  const auto sum = [&] {
    const auto images = Open(Write({Floats("images", {3, 3, 4, 4}, pixels), Labels(labels)}));
    return *SumOfData(**images);
  };
  const std::string before = sum();
  EXPECT_THAT(before, testing::StartsWith("3 images, CRC-32C "));
  EXPECT_EQ(sum(), before);
  pixels.back() += 1;
  const std::string other = sum();
  EXPECT_NE(other, before);
  labels[1] = 2;
  EXPECT_NE(sum(), other);
}

}  // namespace
}  // namespace geminid::trainer
