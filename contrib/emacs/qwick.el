;;; qwick.el --- ask a local language model  -*- lexical-binding: t -*-

;; (load "/usr/share/doc/qwick/contrib/emacs/qwick.el")
;; (global-set-key (kbd "C-c q") #'qwick)
;; M-x qwick asks a question, about the region if it is active, and shows the answer.
;; C-u M-x qwick replaces the region by the answer; undo brings it back.
;; Nothing changes if qwick fails or its answer is cut.  C-g stops it.

;;; Code:

(require 'subr-x)

(defgroup qwick nil "Ask a local language model." :group 'external)
(defcustom qwick-program "qwick" "The program." :type 'string)
(defcustom qwick-options nil "Options, such as (\"-m\" \"Qwen/Qwen3-4B\" \"-x\")."
  :type '(repeat string))

(defun qwick--answer (question text whole)
  "Return the answer to QUESTION about TEXT, or nil for no TEXT.
With WHOLE, an answer that is cut is an error."
  (let ((coding-system-for-read 'utf-8) (coding-system-for-write 'utf-8)
        (errors (make-temp-file "qwick")))
    (unwind-protect
        (with-temp-buffer
          (let* ((arguments (append '("-q") qwick-options
                                    (and whole '("--require-answer"))
                                    (unless text '("--no-stdin")) (list "--" question)))
                 (status (apply #'call-process-region (or text "") nil qwick-program nil
                                (list t errors) nil arguments)))
            (unless (eq status 0)
              (user-error "Qwick: %s: %s" status
                          (string-trim (with-temp-buffer
                                         (insert-file-contents errors)
                                         (buffer-string)))))
            (buffer-string)))
      (delete-file errors))))

;;;###autoload
(defun qwick (question &optional start end replace)
  "Ask QUESTION about the text from START to END, and show the answer.
With REPLACE, the prefix argument, put the answer in place of the text."
  (interactive
   (append (list (read-string "qwick: "))
           (if (use-region-p) (list (region-beginning) (region-end)) '(nil nil))
           (list current-prefix-arg)))
  (when (and replace (not start))
    (user-error "Qwick: there is no region to replace"))
  (when replace
    (barf-if-buffer-read-only))
  (let* ((text (and start (buffer-substring-no-properties start end)))
         (answer (qwick--answer question text replace)))
    (if (not replace)
        (with-current-buffer (get-buffer-create "*qwick*")
          (erase-buffer)
          (insert answer)
          (goto-char (point-min))
          (display-buffer (current-buffer)))
      (atomic-change-group
        (goto-char start)
        (delete-region start end)
        (insert (if (string-suffix-p "\n" text) answer (string-trim-right answer "\n")))))))

(provide 'qwick)
;;; qwick.el ends here
