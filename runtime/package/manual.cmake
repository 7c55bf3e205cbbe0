# manual.cmake: writes lathe.1 and lathe.bash into FOLDER, by the tool TOOL.
execute_process(COMMAND ${TOOL} manual OUTPUT_FILE ${FOLDER}/lathe.1 COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${TOOL} completion bash OUTPUT_FILE ${FOLDER}/lathe.bash COMMAND_ERROR_IS_FATAL ANY)
