# rondo_library(NAME kv HDRS … SRCS … DEPS base … [PRIVATE_DEPS …])   -> target rondo_kv, alias rondo::kv
# rondo_test(NAME kv_block_pool_test SRCS … DEPS kv … [LABELS unit] [TIMES n]) -> one GoogleTest binary, one ctest entry;
#   with TIMES the random runs of its property tests are that many times as many (testing/times.h)
# rondo_bench(NAME … SRCS … DEPS …)                                  -> Google Benchmark binary, not run by ctest
# rondo_fuzz(NAME … SRCS … DEPS …)                                   -> libFuzzer binary with clang, else a corpus replayer
# DEPS name modules ("base") or imported targets ("fmt::fmt").

add_library(rondo_options INTERFACE)
target_include_directories(rondo_options INTERFACE "${CMAKE_SOURCE_DIR}/src")
target_compile_options(
  rondo_options
  INTERFACE -Wall
            -Wextra
            -Wshadow
            -Wconversion
            -Werror
            -fno-math-errno
            # The numbers contract: no contraction the source does not spell out, no reordering.
            -ffp-contract=off)

set(RONDO_SANITIZE "" CACHE STRING "Sanitizers for everything: 'address,undefined' or 'thread'")
if(RONDO_SANITIZE)
  add_compile_options(-fsanitize=${RONDO_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${RONDO_SANITIZE})
  if(RONDO_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

function(_rondo_resolve out)
  set(resolved)
  foreach(dep IN LISTS ARGN)
    if(dep MATCHES "::")
      list(APPEND resolved "${dep}")
    else()
      list(APPEND resolved "rondo::${dep}")
    endif()
  endforeach()
  set(${out} ${resolved} PARENT_SCOPE)
endfunction()

function(rondo_library)
  cmake_parse_arguments(ARG "" "NAME" "HDRS;SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  _rondo_resolve(deps ${ARG_DEPS})
  _rondo_resolve(private_deps ${ARG_PRIVATE_DEPS})
  set(target "rondo_${ARG_NAME}")
  if(ARG_SRCS)
    add_library(${target} STATIC ${ARG_SRCS} ${ARG_HDRS})
    target_link_libraries(${target} PUBLIC rondo_options ${deps} PRIVATE ${private_deps})
  else()
    add_library(${target} INTERFACE ${ARG_HDRS})
    target_link_libraries(${target} INTERFACE rondo_options ${deps} ${private_deps})
  endif()
  add_library("rondo::${ARG_NAME}" ALIAS ${target})
endfunction()

function(rondo_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT;TIMES" "SRCS;DEPS;LABELS;ARGS" ${ARGN})
  if(NOT BUILD_TESTING)
    return()
  endif()
  if(NOT ARG_TIMES)
    set(ARG_TIMES 1)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(RONDO_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 4")
  endif()
  _rondo_resolve(deps ${ARG_DEPS})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE rondo_options ${deps} rapidcheck GTest::gmock GTest::gtest_main)
  target_compile_definitions(${ARG_NAME} PRIVATE RONDO_TEST_TIMES=${ARG_TIMES})
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME} ${ARG_ARGS})
  math(EXPR cases "100 * ${ARG_TIMES}")
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT
                                              "RC_PARAMS=seed=20251129 max_success=${cases}")
endfunction()

# rondo_oracle_test(NAME text_oracle_test SCRIPT x_oracle_test.py PROBES target …): runs the script with the
# oracle environment's Python. It gets the probes' paths as --<target> PATH, and --model FOLDER.
set(RONDO_ORACLE_PYTHON "" CACHE FILEPATH "Python of the oracle environment (scripts/setup.sh --oracle); empty: no oracle tests")
set(RONDO_MODEL_DIR "${CMAKE_SOURCE_DIR}/models/SmolLM2-135M-Instruct" CACHE PATH "The real model, for tests that need it")
function(rondo_oracle_test)
  cmake_parse_arguments(ARG "" "NAME;SCRIPT;TIMEOUT" "PROBES;LABELS;ARGS" ${ARGN})
  if(NOT BUILD_TESTING OR NOT RONDO_ORACLE_PYTHON)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  set(arguments)
  foreach(probe IN LISTS ARG_PROBES)
    list(APPEND arguments "--${probe}" "$<TARGET_FILE:${probe}>")
  endforeach()
  add_test(NAME ${ARG_NAME} COMMAND "${RONDO_ORACLE_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SCRIPT}" ${arguments}
                                    --model "${RONDO_MODEL_DIR}" ${ARG_ARGS})
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "oracle;${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()

# rondo_probe(NAME … SRCS … DEPS …): a small program that an oracle test drives.
function(rondo_probe)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  if(NOT BUILD_TESTING)
    return()
  endif()
  _rondo_resolve(deps ${ARG_DEPS})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE rondo_options ${deps})
endfunction()

function(rondo_bench)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  if(NOT benchmark_FOUND)
    return()
  endif()
  _rondo_resolve(deps ${ARG_DEPS})
  add_executable(${ARG_NAME} EXCLUDE_FROM_ALL ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE rondo_options ${deps} benchmark::benchmark_main)
endfunction()

# A fuzz target is a file with LLVMFuzzerTestOneInput. clang builds it with libFuzzer; with g++ the same file
# is linked with a driver that mutates its seed inputs for a fixed number of rounds, and runs as a unit test.
function(rondo_fuzz)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  if(NOT BUILD_TESTING)
    return()
  endif()
  _rondo_resolve(deps ${ARG_DEPS})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    add_executable(${ARG_NAME} ${ARG_SRCS})
    target_compile_options(${ARG_NAME} PRIVATE -fsanitize=fuzzer)
    target_link_options(${ARG_NAME} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(${ARG_NAME} PRIVATE rondo_options ${deps})
  else()
    add_executable(${ARG_NAME} ${ARG_SRCS} "${CMAKE_SOURCE_DIR}/src/testing/fuzz_driver.cc")
    target_link_libraries(${ARG_NAME} PRIVATE rondo_options ${deps})
    add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME} --rounds=2000 --seed=1)
    set_tests_properties(${ARG_NAME} PROPERTIES LABELS unit TIMEOUT 120)
  endif()
endfunction()
