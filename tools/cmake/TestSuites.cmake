# ctest includes this file before it runs tests. It makes one entry for each suite of a GoogleTest program: a
# process for each test would cost more than most tests. All parameters and types of a suite are
# one entry. With ALSO_AT LEVEL before the properties each suite has a second entry, named
# PROGRAM.SUITE@LEVEL, which runs with GEMINID_MAX_ISA=LEVEL.
function(geminid_add_suites program)
  cmake_parse_arguments(ARG "" "ALSO_AT" "" ${ARGN})
  get_filename_component(name ${program} NAME)
  if(NOT EXISTS ${program})
    add_test(${name}_NOT_BUILT ${name}_NOT_BUILT)
    return()
  endif()
  execute_process(COMMAND ${program} --gtest_list_tests
                  OUTPUT_VARIABLE lines RESULT_VARIABLE result TIMEOUT 60)
  if(NOT result EQUAL 0)
    add_test(${name}_LISTS_NO_TESTS ${name}_LISTS_NO_TESTS)
    return()
  endif()
  # "Suite.", "Instance/Suite." and "Suite/0.  # TypeParam = ..."; tests are indented.
  string(REGEX MATCHALL "(^|\n)[A-Za-z0-9_/]+\\.([ \n]|$)" found "${lines}")
  set(suites "")
  foreach(line IN LISTS found)
    string(REGEX REPLACE "[. \n]" "" suite ${line})
    string(REGEX REPLACE "/[0-9]+$" "" suite ${suite})
    string(REGEX REPLACE "^.*/" "" suite ${suite})
    list(APPEND suites ${suite})
  endforeach()
  list(REMOVE_DUPLICATES suites)
  foreach(suite IN LISTS suites)
    set(command ${program} --gtest_brief=1
        "--gtest_filter=${suite}.*:*/${suite}.*:${suite}/?.*:${suite}/??.*:*/${suite}/?.*:*/${suite}/??.*")
    add_test(${name}.${suite} ${command})
    set_tests_properties(${name}.${suite} PROPERTIES ${ARG_UNPARSED_ARGUMENTS})
    if(ARG_ALSO_AT)
      set(again ${name}.${suite}@${ARG_ALSO_AT})
      add_test(${again} ${command})
      set_tests_properties(${again} PROPERTIES ${ARG_UNPARSED_ARGUMENTS}
                           ENVIRONMENT GEMINID_MAX_ISA=${ARG_ALSO_AT})
    endif()
  endforeach()
endfunction()
