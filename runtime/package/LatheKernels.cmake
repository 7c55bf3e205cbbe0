# LatheKernels.cmake: kernels compiled ahead of time, as a library of a CMake project.
#
#   lathe_add_kernels(TARGET
#       SPECS    alibi.lua causal      files (relative to this folder), or names of shipped specs
#       ARCHS    sm_80 sm_90a          GPU architectures
#       PROBLEMS dtype=bf16,d=128 ...  what is compiled in; each spec is compiled for each of them
#       [PASSES  forward backward combine]     default: forward
#       [PARAMS  W=128 ...]            parameters of the specs, local W = param("W", 256)
#       [NAME    name]                 of library, header and functions; default: the target's name
#       [DEPENDS file ...])            what the kernels are to be rebuilt for besides the specs and the tool
#
# TARGET is then a static library to link with: libNAME.a, the folder of NAME.h, and Lathe::rt (liblathe_rt), which
# neither Lua nor NVRTC is part of. It is made by `lathe aot` while building, which needs NVRTC but no GPU, and made
# again when a spec or the tool has changed; only the kernels that the change reaches are compiled then. Files:
# ${TARGET}.lathe in the binary folder. The tool is Lathe::tool; LATHE_TOOL_PROGRAM overrides it: a cross build has to
# name one that runs on the machine which builds.
include_guard(GLOBAL)

function(lathe_kernels_check target)
    foreach(list SPECS ARCHS PROBLEMS)
        if(NOT arg_${list})
            message(FATAL_ERROR "lathe_add_kernels(${target}): expected ${list} with at least one value")
        endif()
    endforeach()
    if(arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "lathe_add_kernels(${target}): expected SPECS, ARCHS, PROBLEMS, PASSES, PARAMS, NAME or "
            "DEPENDS, given '${arg_UNPARSED_ARGUMENTS}'")
    endif()
    if(NOT name MATCHES "^[A-Za-z_][A-Za-z0-9_]*$")
        message(FATAL_ERROR "lathe_add_kernels(${target}): expected NAME to be a C identifier, given '${name}'")
    endif()
endfunction()

# --cc and the project's own compiler. One that needs a word to compile for the target, as clang does, gets it by a
# script.
function(lathe_kernels_compiler out script)
    set(${out} PARENT_SCOPE)
    if(NOT CMAKE_C_COMPILER)
        return()
    endif()
    set(words)
    if(CMAKE_C_COMPILER_TARGET)
        string(APPEND words " '${CMAKE_C_COMPILE_OPTIONS_TARGET}${CMAKE_C_COMPILER_TARGET}'")
    endif()
    if(CMAKE_SYSROOT)
        string(APPEND words " '--sysroot=${CMAKE_SYSROOT}'")
    endif()
    set(program ${CMAKE_C_COMPILER})
    if(words)
        set(program ${script})
        file(WRITE ${script} "#!/bin/sh\nexec '${CMAKE_C_COMPILER}'${words} \"$@\"\n")
        file(CHMOD ${script} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
    endif()
    set(${out} --cc ${program} PARENT_SCOPE)
endfunction()

function(lathe_add_kernels target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "NAME" "SPECS;PASSES;PARAMS;ARCHS;PROBLEMS;DEPENDS")
    set(name ${arg_NAME})
    if(NOT name)
        string(MAKE_C_IDENTIFIER ${target} name)
    endif()
    lathe_kernels_check(${target})
    if(NOT arg_PASSES)
        set(arg_PASSES forward)
    endif()

    # A name that is no file here is a shipped spec's; the tool says so where it is not.
    set(specs)
    set(spec_files)
    foreach(spec IN LISTS arg_SPECS)
        get_filename_component(file ${spec} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
        if(spec MATCHES "^[A-Za-z0-9_]+$" AND NOT EXISTS ${file})
            list(APPEND specs ${spec})
        else()
            list(APPEND specs ${file})
            list(APPEND spec_files ${file})
        endif()
    endforeach()

    if(LATHE_TOOL_PROGRAM)
        set(tool ${LATHE_TOOL_PROGRAM})
    elseif(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
        message(FATAL_ERROR "lathe_add_kernels(${target}): a cross build needs the program lathe of the machine that "
            "builds, of the same version: set LATHE_TOOL_PROGRAM to it")
    elseif(TARGET Lathe::tool)
        set(tool $<TARGET_FILE:Lathe::tool>)
    else()
        message(FATAL_ERROR "lathe_add_kernels(${target}): the program lathe is not part of this installation of "
            "Lathe; set LATHE_TOOL_PROGRAM")
    endif()
    string(REPLACE ";" "," passes "${arg_PASSES}")
    string(REPLACE ";" "," archs "${arg_ARCHS}")
    set(problems)
    foreach(problem IN LISTS arg_PROBLEMS)
        list(APPEND problems --problem ${problem})
    endforeach()
    set(params)
    foreach(param IN LISTS arg_PARAMS)
        list(APPEND params --param ${param})
    endforeach()

    # The project's own compiler and archiver, where it has them.
    set(compiler)
    set(environment)
    lathe_kernels_compiler(compiler ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/lathe-cc)
    if(CMAKE_AR)
        set(environment ${CMAKE_COMMAND} -E env AR=${CMAKE_AR})
    endif()

    set(folder ${CMAKE_CURRENT_BINARY_DIR}/${target}.lathe)
    set(library ${folder}/lib${name}.a)
    set(header ${folder}/${name}.h)
    file(MAKE_DIRECTORY ${folder})
    add_custom_command(OUTPUT ${library} ${header}
        COMMAND ${environment} ${tool} aot ${specs} --pass ${passes} --arch ${archs} ${problems} ${params}
                --name ${name} ${compiler}
                --cache ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/lathe -o ${folder}
        DEPENDS ${spec_files} ${arg_DEPENDS} ${tool}
        COMMENT "Compiling kernels: ${target}"
        VERBATIM)
    add_custom_target(${target}_lathe DEPENDS ${library} ${header})
    add_library(${target} STATIC IMPORTED GLOBAL)
    set_target_properties(${target} PROPERTIES
        IMPORTED_LOCATION ${library}
        INTERFACE_INCLUDE_DIRECTORIES ${folder}
        INTERFACE_LINK_LIBRARIES Lathe::rt)
    add_dependencies(${target} ${target}_lathe)
endfunction()
