@echo off
rem Installs what the tests need and runs them; every flag goes to pytest: test.bat -m "not slow"
"%~dp0kohya_gui\start.bat" test %*
