" Ask qwick from vim. Copy this file to ~/.vim/plugin.
"   :Qwick QUESTION          the answer comes in a new window
"   :'<,'>Qwick QUESTION     a question about the selected lines
"   :'<,'>Qwick! QUESTION    replaces these lines by the answer; u undoes that
" Nothing changes if qwick fails or its answer is cut. CTRL-C stops it.
"   let g:qwick_options = ['-m', 'Qwen/Qwen3-4B', '-x']
if exists('g:loaded_qwick') || &compatible
  finish
endif
let g:loaded_qwick = 1

function! s:ask(question, lines, whole) abort
  let words = ['qwick', '-q'] + get(g:, 'qwick_options', [])
  let words += (a:whole ? ['--require-answer'] : []) + (empty(a:lines) ? ['--no-stdin'] : [])
  let errors = tempname()
  let command = join(map(words + ['--', a:question], 'shellescape(v:val)'))
  let command .= ' 2>' . shellescape(errors)
  let answer = empty(a:lines) ? systemlist(command) : systemlist(command, a:lines + [''])
  let failed = v:shell_error
  let why = filereadable(errors) ? readfile(errors) : []
  call delete(errors)
  if failed
    throw 'qwick: exit status ' . failed . ': ' . join(why, ' ')
  endif
  return answer
endfunction

function! s:qwick(range, first, last, replace, question) abort
  if a:replace && !a:range
    echoerr 'Qwick! needs a range'
    return
  endif
  try
    let answer = s:ask(a:question, a:range ? getline(a:first, a:last) : [], a:replace)
    if a:replace
      call append(a:last, answer)
      silent execute a:first . ',' . a:last . 'delete _'
    else
      new
      setlocal buftype=nofile bufhidden=wipe noswapfile
      call setline(1, answer)
    endif
  catch /^qwick: /
    echohl ErrorMsg
    echomsg v:exception
    echohl None
  endtry
endfunction

command! -range -bang -nargs=1 Qwick
      \ call s:qwick(<range>, <line1>, <line2>, <bang>0, <q-args>)
