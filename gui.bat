@echo off
rem Installs what is missing and starts the GUI; every flag goes to it: gui.bat --server_port 7860 --inbrowser
"%~dp0kohya_gui\start.bat" gui %*
