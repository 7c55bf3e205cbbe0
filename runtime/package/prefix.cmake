# prefix.cmake: gives every global name of a static library that does not begin with lathe_ the prefix lathe__, in
# place: a program's own check() or emit() must neither stand in for the library's nor clash with it.
#     cmake -DLIBRARY=liblathe.a -DNM=nm -DOBJCOPY=objcopy -P prefix.cmake
execute_process(COMMAND ${NM} -P -g --defined-only ${LIBRARY} OUTPUT_VARIABLE rows ERROR_QUIET
    COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" rows "${rows}")
set(map)
foreach(row IN LISTS rows)
    if(NOT row MATCHES "^lathe_" AND row MATCHES "^([A-Za-z_][A-Za-z0-9_]*) [A-Z] ")
        list(APPEND map "${CMAKE_MATCH_1} lathe__${CMAKE_MATCH_1}\n")
    endif()
endforeach()
list(REMOVE_DUPLICATES map)
list(SORT map)
string(JOIN "" map ${map})
file(WRITE ${LIBRARY}.names "${map}")
execute_process(COMMAND ${OBJCOPY} --redefine-syms=${LIBRARY}.names ${LIBRARY} COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE ${LIBRARY}.names)
