// One measurement of a suffix tree, the same for every implementation: prints one JSON object.
#pragma once

#include <malloc.h>

#include <cstdio>
#include <ctime>
#include <span>
#include <vector>

#include "suffix/sibling_workload.h"

namespace rondo::bench {

inline constexpr int kDepth = 24;
inline constexpr int kDraftTokens = 8;
inline constexpr int kNumDrafts = 20000;

/// A draft that is a path.
using Path = std::vector<Token>;

/// Processor time of this process, in microseconds.
inline double now() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

/// What an adapter offers: append(sequence, tokens), remove(sequence), reported_bytes(), and
/// draft(sequence, context, path), which replaces `path`; the context is the last kDepth tokens of the
/// sequence and in the tree as its end.
template <class Tree>
class Measurement final {
 public:
  void run() {
    append_token_by_token();
    append_in_spans();
    draft_at_places();
    replay(0);
    replay(15);
    replay(63);
    remove_all();
    std::printf("}\n");
  }

 private:
  using Sequences = std::vector<std::vector<Token>>;

  void say(const char* name, double value) {
    std::printf("%s\"%s\": %.6g", is_first_ ? "{" : ", ", name, value);
    is_first_ = false;
  }
  static std::span<const Token> context_of(std::span<const Token> tokens) {
    return tokens.last(std::min(tokens.size(), static_cast<std::size_t>(kDepth)));
  }
  void fill(Tree& tree, int num_sequences) const {
    for (int i = 0; i < num_sequences; ++i) tree.append(i, sequences_[static_cast<std::size_t>(i)]);
  }

  void append_token_by_token() {
    const auto before = mallinfo2().uordblks + mallinfo2().hblkhd;
    Tree tree;
    const double start = now();
    for (std::size_t at = 0; at < sequences_[0].size(); ++at)
      for (std::size_t i = 0; i < sequences_.size(); ++i)
        tree.append(static_cast<int>(i), {&sequences_[i][at], 1});
    say("append, us/token", (now() - start) / num_tokens_);
    say("allocated, bytes/token",
        static_cast<double>(mallinfo2().uordblks + mallinfo2().hblkhd - before) / num_tokens_);
    say("reported, bytes/token", static_cast<double>(tree.reported_bytes()) / num_tokens_);
  }

  void append_in_spans() {
    Tree tree;
    const double start = now();
    fill(tree, static_cast<int>(sequences_.size()));
    say("append in spans, us/token", (now() - start) / num_tokens_);
  }

  // The sequences stop at many different places; each drafts once where it stopped.
  void draft_at_places() {
    Tree tree;
    std::vector<std::size_t> length(sequences_.size());
    Path path;
    double spent = 0;
    std::size_t num_drafted = 0;
    const std::size_t rounds = kNumDrafts / sequences_.size();
    for (std::size_t round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < sequences_.size(); ++i) {
        const std::size_t target = (round + 1) * sequences_[i].size() / rounds;
        tree.append(static_cast<int>(i), std::span(sequences_[i]).subspan(length[i], target - length[i]));
        length[i] = target;
      }
      const double start = now();
      for (std::size_t i = 0; i < sequences_.size(); ++i) {
        tree.draft(static_cast<int>(i), context_of(std::span(sequences_[i]).first(length[i])), path);
        num_drafted += path.size();
      }
      spent += now() - start;
    }
    const auto num_drafts = static_cast<double>(rounds * sequences_.size());
    say("draft, us", spent / num_drafts);
    say("drafted tokens", static_cast<double>(num_drafted) / num_drafts);
  }

  // The last sibling decodes while others are complete; drafts are accepted while they equal it.
  void replay(int num_complete) {
    Tree tree;
    fill(tree, num_complete);
    const auto& own = sequences_.back();
    const int id = static_cast<int>(sequences_.size()) - 1;
    Path path;
    int num_steps = 0;
    const double start = now();
    for (std::size_t at = 0; at < own.size(); ++num_steps) {
      path.clear();
      if (at > 0) tree.draft(id, context_of(std::span(own).first(at)), path);
      std::size_t accepted = 0;
      while (accepted < path.size() && at + accepted < own.size() && path[accepted] == own[at + accepted])
        ++accepted;
      const std::size_t step = std::min(accepted + 1, own.size() - at);
      tree.append(id, std::span(own).subspan(at, step));
      at += step;
    }
    char name[64];
    std::snprintf(name, sizeof name, "tokens/step beside %d siblings", num_complete);
    say(name, static_cast<double>(own.size()) / num_steps);
    std::snprintf(name, sizeof name, "step beside %d siblings, us", num_complete);
    say(name, (now() - start) / num_steps);
  }

  void remove_all() {
    Tree tree;
    fill(tree, static_cast<int>(sequences_.size()));
    const double start = now();
    for (std::size_t i = 0; i < sequences_.size(); ++i) tree.remove(static_cast<int>(i));
    say("remove, us/token", (now() - start) / num_tokens_);
  }

  bool is_first_ = true;
  Sequences sequences_ = suffix::SiblingWorkload{}.sequences();
  double num_tokens_ = static_cast<double>(sequences_.size() * sequences_[0].size());
};

}  // namespace rondo::bench
